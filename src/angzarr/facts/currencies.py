"""Currencies: the codes of ISO 4217 (list one), with those that were withdrawn after 2023."""

from __future__ import annotations

from typing import Final

from angzarr.errors import InvalidCost
from angzarr.runtime.text import printable, unknown

#: XXX stands for no currency, and is none.
_CODES: Final = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BOV BRL BSD BTN BWP
    BYN BZD CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB
    EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY
    KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR
    MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB
    RWF SAR SBD SCR SDG SEK SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD
    TWD TZS UAH UGX USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD XAF XAG XAU XBA XBB XBC XBD XCD
    XCG XDR XOF XPD XPF XPT XSU XTS XUA YER ZAR ZMW ZWG ZWL
"""
CURRENCIES: Final = frozenset(_CODES.split())


def checked_currency(code: object) -> str:
    """*code* if it is a currency; raises InvalidCost, with the nearest code."""
    if isinstance(code, str) and code in CURRENCIES:
        return code
    shown = printable(code)[:20]
    raise InvalidCost(
        unknown("currency", shown, CURRENCIES, 'write a code of ISO 4217, such as "EUR"')
    )
