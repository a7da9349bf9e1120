// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args    []string
		want    options
		wantErr string
	}{
		"everything after the two dashes is the command": {
			args: []string{"--keep-logs", "/tmp/logs", "--image", "/images/a.tar", "--image", "/images/b.tar", "--", "kubectl", "get", "--image", "x"},
			want: options{
				LogDir:  "/tmp/logs",
				Images:  []string{"/images/a.tar", "/images/b.tar"},
				Command: []string{"kubectl", "get", "--image", "x"},
			},
		},
		"logs and images are optional": {args: []string{"--", "true"}, want: options{Command: []string{"true"}}},
		"a command is required":        {args: []string{"--keep-logs", "/tmp/logs", "--"}, wantErr: "no command"},
		"an unknown flag is an error":  {args: []string{"--logs", "/tmp/logs", "--", "true"}, wantErr: "not defined"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseOptions(test.args, io.Discard)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got %v and error %v, want an error with %q", got, err, test.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	files, packages := missing(func(file string) bool {
		return file != "containerd" && file != "ctr" && file != cniPlugins+"/ptp"
	})
	if diff := cmp.Diff([]string{"containerd", "ctr", cniPlugins + "/ptp"}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"containerd", "containernetworking-plugins"}, packages); diff != "" {
		t.Errorf("packages (-want +got):\n%s", diff)
	}
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		cause         error
		wantComponent string
		wantErr       string
	}{
		"a timeout is the component's failure": {
			cause:         errors.New("too late"),
			wantComponent: "kubelet",
			wantErr:       "kubelet: wait for the node: too late (last attempt: not yet)",
		},
		"another component's failure is reported instead": {
			cause:         &componentError{"etcd", errors.New("ended by itself")},
			wantComponent: "etcd",
			wantErr:       "etcd: ended by itself",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			attempts := 0
			err := waitFor(ctx, "kubelet", "the node", func(context.Context) error {
				if attempts++; attempts == 2 {
					cancel(test.cause)
				}
				return errors.New("not yet")
			})
			component, ok := errors.AsType[*componentError](err)
			if !ok || component.component != test.wantComponent || err.Error() != test.wantErr {
				t.Errorf("got error %q of %+v, want %q of %s", err, component, test.wantErr, test.wantComponent)
			}
		})
	}
}
