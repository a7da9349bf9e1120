// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cluster starts a Kubernetes cluster with one node, runs a command
// against it, and removes the cluster:
//
//	cluster [--keep-logs DIR] [--image ARCHIVE]... -- COMMAND [ARG...]
//
// It needs root on Debian, a few packages (it lists missing ones), and the
// output of hack/controlplane.sh, hack/node.sh and "hack/images.sh pause". It
// needs no network, no registry and no container engine.
//
// etcd, the Kubernetes components, containerd, all containers and COMMAND run
// in their own process, mount and network namespaces. They all end with the
// first process of these namespaces. There is no network connection between
// inside and outside. Several clusters can run at the same time.
//
// Each --image is an image archive in the format of docker save. Pods use the
// image with imagePullPolicy Never or IfNotPresent. As with kubeadm, the
// kubelet reads static pods from /etc/kubernetes/manifests; inside of the
// namespaces, this directory belongs to the cluster and is initially empty.
//
// COMMAND gets KUBECONFIG (with administrator rights), kubectl and the other
// binaries in PATH, and CONTAINERD_ADDRESS for ctr. The exit code is that of
// COMMAND; 125 means that the cluster itself failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// exitFailed is the exit code for failures other than the command's. docker run
// uses the same code.
const exitFailed = 125

// The program runs itself again inside of the namespaces. Its name selects the
// part to run; callers do not use these names by accident.
const (
	nameInit   = "lanyard-cluster-init"
	nameInside = "lanyard-cluster-inside"
)

func main() {
	os.Exit(run(os.Args))
}

// run runs the program and returns its exit code.
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

// options holds the command line.
type options struct {
	// LogDir is the absolute path of the directory for logs, or empty if the
	// logs are not kept.
	LogDir string
	// Images are the absolute paths of image archives.
	Images  []string
	Command []string
}

// parseOptions parses the arguments after the program's name. It writes errors
// and the usage to out.
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
	flags.Func("image", "import the image `ARCHIVE`; can be repeated", func(value string) error {
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
		return options{}, errors.New("no command given")
	}
	return opts, nil
}
