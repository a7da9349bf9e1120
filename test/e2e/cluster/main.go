// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster runs a command against a whole Kubernetes cluster of one
// node, which it starts before and removes after:
//
//	cluster [--keep-logs DIR] [--image ARCHIVE]... -- COMMAND [ARG...]
//
// It needs root on Debian, a few packages, which it names where they are
// missing, and what hack/controlplane.sh, hack/node.sh and "hack/images.sh
// pause" built. It needs no network, no registry and no container engine.
//
// etcd, the components of Kubernetes, containerd and every container live in a
// process, a mount and a network namespace of their own, and so does COMMAND.
// They end together with the first process in there, whatever became of them.
// Nothing inside reaches the network outside, nor the other way round. Several
// clusters may run at the same time.
//
// Each --image is the archive of an image, in the format of docker save. Pods
// run it with imagePullPolicy Never or IfNotPresent. The kubelet takes static
// pods from /etc/kubernetes/manifests, as kubeadm's does: the cluster's own
// directory, empty at first.
//
// COMMAND finds KUBECONFIG (an administrator), kubectl and the other binaries
// in PATH, and CONTAINERD_ADDRESS for ctr. Its exit code is the program's own;
// 125 means that the cluster failed, not COMMAND.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// exitFailed is the exit code of a failure that is not the command's, the one
// that docker run has for it.
const exitFailed = 125

// The program runs itself again inside of the namespaces it makes. What it is
// there for is in its name, which no caller gives it by chance.
const (
	nameInit   = "lanyard-cluster-init"
	nameInside = "lanyard-cluster-inside"
)

func main() {
	os.Exit(run(os.Args))
}

// run returns the exit code.
func run(args []string) int {
	var code int
	var err error
	switch args[0] {
	case nameInit:
		code, err = runInit(args[1:])
	case nameInside:
		code, err = runInside(args[1:])
	default:
		code, err = runOutside(args[1:])
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		return exitFailed
	}
	return code
}

// options is what the command line says.
type options struct {
	// LogDir is the absolute path of the directory that keeps the logs, or
	// empty.
	LogDir string
	// Images are the absolute paths of archives.
	Images  []string
	Command []string
}

// parseOptions reads a command line without the program's name. What is wrong
// with it, and the usage, goes to out.
func parseOptions(args []string, out io.Writer) (options, error) {
	var opts options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		_, _ = fmt.Fprintln(out, "usage: cluster [--keep-logs DIR] [--image ARCHIVE]... -- COMMAND [ARG...]")
		flags.PrintDefaults()
	}
	flags.Func("keep-logs", "keep the logs of components and pods in `DIR`", func(value string) (err error) {
		opts.LogDir, err = filepath.Abs(value)
		return err
	})
	flags.Func("image", "have the image of this `ARCHIVE`; may be given several times", func(value string) error {
		path, err := filepath.Abs(value)
		opts.Images = append(opts.Images, path)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	opts.Command = flags.Args()
	if len(opts.Command) == 0 {
		flags.Usage()
		return options{}, errors.New("got no command to run")
	}
	return opts, nil
}
