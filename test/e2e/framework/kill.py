# Copyright The Lanyard Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Sends SIGKILL to the processes of containers: kill.py once|always ID..., with IDs of
# containers or pods. It runs in a pod that shares the node's process namespace. With
# "always" it kills the replacements, too, until its pod is deleted, and says when it has
# killed for the first time. Pause processes are not killed, because they do not crash in
# practice.
import glob, os, signal, sys, time

killed, told = 0, False
while True:
    for directory in glob.glob("/proc/[0-9]*"):
        try:
            with open(directory + "/cgroup") as cgroups, open(directory + "/comm") as name:
                text = cgroups.read()
                if name.read().strip() != "pause" and any(i in text for i in sys.argv[2:]):
                    os.kill(int(os.path.basename(directory)), signal.SIGKILL)
                    killed += 1
        except (FileNotFoundError, ProcessLookupError):
            pass  # ended in the meantime
    if killed and not told:
        told = True
        print("killed", killed, flush=True)
    if sys.argv[1] == "once":
        break
    time.sleep(0.02)
sys.exit(killed == 0)
