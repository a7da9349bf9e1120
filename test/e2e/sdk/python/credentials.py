#!/usr/bin/env python3
# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0

"""Gets credentials with the official Python SDKs of the clouds.

It uses only their default credential chains and prints a JSON line for each.
The contract of all SDK programs is in ../README.md.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import signal
import sys
import time

# Limits each attempt, including the SDK's own retries.
TIMEOUT_SECONDS = 180

OK, FAILED, USAGE = 0, 1, 2


# Each SDK is loaded on first use, because loading takes time.


def aws():
    import boto3
    import botocore.exceptions

    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise botocore.exceptions.NoCredentialsError()  # the same error as the AWS clients'
    token = credentials.get_frozen_credentials().token
    # botocore has no public attribute for the expiry.
    return token, getattr(credentials, "_expiry_time", None)


def azure():
    from azure.identity import DefaultAzureCredential

    token = DefaultAzureCredential().get_token("https://management.azure.com/.default")
    return token.token, datetime.datetime.fromtimestamp(token.expires_on, datetime.timezone.utc)


def gcp():
    import google.auth
    import google.auth.transport.requests

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(google.auth.transport.requests.Request())
    expires = credentials.expiry  # UTC, but without a time zone
    return credentials.token, expires and expires.replace(tzinfo=datetime.timezone.utc)


CLOUDS = {"aws": aws, "azure": azure, "gcp": gcp}


class TimedOut(BaseException):
    """Not an Exception, so that SDKs do not catch it and continue."""


def timed_out(*_):
    raise TimedOut(f"no response within {TIMEOUT_SECONDS} s")


def seconds(duration):
    """Parses a duration in Go's format, such as 5s or 1m30s."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    total = 0.0
    if re.fullmatch(r"([\d.]+(ms|s|m|h))+", duration):
        for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", duration):
            total += float(number) * units[unit]
    if total <= 0:
        raise ValueError("want a positive duration such as 5s")
    return total


def parse(args):
    parser = argparse.ArgumentParser(prog="credentials", add_help=False, allow_abbrev=False)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--every", metavar="DURATION", type=seconds, default=0)
    group.add_argument("--forever", action="store_true")
    parser.add_argument("clouds", metavar="CLOUD", nargs="+", choices=CLOUDS)
    return parser.parse_args(args)  # exits with code 2 and a message on stderr


def attempt(cloud):
    """Returns the line for one cloud."""
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT_SECONDS)
    try:
        token, expires = CLOUDS[cloud]()
        if not token:
            raise ValueError("got a credential without a token")
    except (Exception, TimedOut) as error:
        return {"cloud": cloud, "error": f"{type(error).__name__}: {error}"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    line = {"cloud": cloud, "credential": hashlib.sha256(token.encode()).hexdigest()}
    if expires:
        utc = expires.astimezone(datetime.timezone.utc)
        line["expires"] = utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    return line


def make_round(clouds):
    ok = True
    for cloud in clouds:
        line = attempt(cloud)
        ok = ok and "error" not in line
        print(json.dumps(line), flush=True)
    return ok


def main(args):
    options = parse(args)
    end = OK if options.every or options.forever else FAILED
    signal.signal(signal.SIGTERM, lambda *_: os._exit(end))
    signal.signal(signal.SIGALRM, timed_out)
    while make_round(options.clouds):
        if options.forever:
            while True:
                signal.pause()
        if not options.every:
            return OK
        time.sleep(options.every)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
