"""Calls of AWS: made, or only shown; what they say and do is the same list."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from angzarr_aws.description import Mistake

Reply = Mapping[str, Any]

#: Of which something is missing.
GONE = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NotFound",
        "NotFoundException", "404", "NoSuchBucket", "NoSuchPublicAccessBlockConfiguration",
        "ServerSideEncryptionConfigurationNotFoundError", "NoSuchLifecycleConfiguration",
    }
)  # fmt: skip
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "AuthorizationError", "403"})
_LOGIN = frozenset(
    {
        "InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId",
        "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException",
    }
)  # fmt: skip
_ELSEWHERE = frozenset(
    {"IllegalLocationConstraintException", "AuthorizationHeaderMalformed", "PermanentRedirect"}
)


class Missing(Exception):
    """What was asked for does not exist."""


class Calls(Protocol):
    """Somebody who makes calls."""

    def __call__(self, service: str, operation: str, /, **parameters: Any) -> Reply:
        """Make one; raises Missing, Mistake."""


def shown(service: str, operation: str, parameters: Mapping[str, Any]) -> str:
    """Return one call on one line."""
    return f"{service} {operation} {json.dumps(parameters, sort_keys=True)}"


class Dry:
    """Makes no call and needs no credentials: nothing exists, and all would be made."""

    def __init__(self, tell: Callable[[str], object], region: str, account: str) -> None:
        self._tell = tell
        self._where = f"{region}:{account}"

    def __call__(self, service: str, operation: str, /, **parameters: Any) -> Reply:
        """Tell the call, and return what AWS would."""
        self._tell(shown(service, operation, parameters))
        name = parameters.get("QueueName") or parameters.get("Name") or ""
        match operation:
            case "get_queue_url" | "head_bucket":
                raise Missing
            case "create_queue":
                return {"QueueUrl": f"https://sqs/{name}"}
            case "get_queue_attributes":
                queue = parameters["QueueUrl"].rpartition("/")[2]
                return {"Attributes": {"QueueArn": f"arn:aws:sqs:{self._where}:{queue}"}}
            case "create_topic":
                return {"TopicArn": f"arn:aws:sns:{self._where}:{name}"}
            case _:
                return {}


class Live:
    """Makes the calls, with credentials as boto3 finds them."""

    def __init__(
        self,
        tell: Callable[[str], object],
        region: str,
        endpoint_url: str | None = None,
        profile: str | None = None,
    ) -> None:
        try:
            import boto3  # noqa: PLC0415 - a dry run does without
        except ModuleNotFoundError as error:
            raise Mistake("boto3 is not installed: pip install boto3") from error
        self._tell = tell
        self._region = region
        self._endpoint = endpoint_url
        with _told("", "", region, endpoint_url):
            keys = dict(_ANY_KEYS) if _is_local(endpoint_url) else {}
            options: dict[str, Any] = {"profile_name": profile, **keys}
            self._session: Any = boto3.session.Session(**options)
        self._clients: dict[str, Any] = {}

    def __call__(self, service: str, operation: str, /, **parameters: Any) -> Reply:
        """Make the call."""
        self._tell(shown(service, operation, parameters))
        with _told(service, operation, self._region, self._endpoint):
            if service not in self._clients:
                self._clients[service] = self._session.client(
                    service, region_name=self._region, endpoint_url=self._endpoint, config=_quick()
                )
            reply: Reply = getattr(self._clients[service], operation)(**parameters)
            return reply


#: LocalStack takes any.
_ANY_KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}


def _is_local(endpoint_url: str | None) -> bool:
    return endpoint_url is not None and "amazonaws" not in endpoint_url


def _quick() -> Any:
    from botocore.config import Config  # noqa: PLC0415 - a dry run does without

    return Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2})


class _told:  # noqa: N801 - used as a function
    """Turns what boto3 raises into Missing or a Mistake of one sentence."""

    def __init__(self, service: str, operation: str, region: str, endpoint: str | None) -> None:
        self._what = f"{service}:{''.join(map(str.capitalize, operation.split('_')))}"
        self._region = region
        self._endpoint = endpoint

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Judge the error."""
        if error is None or isinstance(error, Missing | Mistake):
            return
        from botocore import exceptions as aws  # noqa: PLC0415

        if isinstance(error, aws.ClientError):
            raise self._of_aws(error.response.get("Error", {})) from error
        if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError):
            raise Mistake(
                "no AWS credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
                " a profile, or a role; --dry-run needs none"
            ) from error
        if isinstance(error, aws.ProfileNotFound):
            raise Mistake(f"{error}: correct --profile or AWS_PROFILE") from error
        if isinstance(error, aws.BotoCoreError | ValueError):
            raise self._no_answer(error) from error

    def _of_aws(self, said: Mapping[str, Any]) -> Exception:
        code, text = str(said.get("Code", "")), " ".join(str(said.get("Message", "")).split())
        if code in GONE:
            return Missing()
        if code in _DENIED:
            return Mistake(f"AWS does not allow {self._what}: allow it to this role ({text})")
        if code in _LOGIN:
            return Mistake(f"AWS does not take these credentials ({code}): log in anew")
        if code in _ELSEWHERE:
            return Mistake(f"the bucket is not in {self._region}: say the right --region ({text})")
        if code == "BucketAlreadyExists":
            return Mistake("the bucket's name is taken by another account: choose another one")
        return Mistake(f"AWS refused {self._what}: {code} {text}".strip())

    def _no_answer(self, error: Exception) -> Mistake:
        if self._endpoint:
            return Mistake(
                f"no answer from {_without_password(self._endpoint)}"
                f" ({type(error).__name__}): start LocalStack, or correct --endpoint-url"
            )
        return Mistake(
            f"no answer from AWS in {self._region} ({type(error).__name__}):"
            " is that a region, and is the network there?"
        )


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
