"""What angzarr needs on AWS, made from one description; needs Python and boto3, not angzarr.

LocalStack runs it in a Python of its own, which has no angzarr. So the names are written here once
more, and a test holds them equal to the code's.
"""
