// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/lanyard-dev/lanyard/internal/exchange"
)

// verifyMemory is the limit of Go's memory in bytes. The container has 32 MiB; the rest is for the
// program itself, and the kernel.
const verifyMemory = 20 << 20

const verifyHelp = `verify is the init container lanyard-verify of a pod whose ServiceAccount has the annotation
lanyard.dev/verify. It presents the tokens of the pod to AWS, Azure and Google Cloud, until they accept
or --timeout has passed. Then the termination message of the container has the cause and the repair:
kubectl describe pod shows it.`

// newVerifyCommand returns the command of the init container.
func newVerifyCommand(width int) *cobra.Command {
	warn, message, timeout := false, "/dev/termination-log", exchange.VerifyTimeout
	cmd := &cobra.Command{
		Use:           "verify",
		Short:         "Check that the clouds accept the tokens of this pod.",
		Long:          verifyHelp,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return runVerify(cmd, warn, message, timeout) },
	}
	var groups cliflag.NamedFlagSets
	fs := groups.FlagSet("Verify")
	fs.BoolVar(&warn, "warn", warn, "Always exit with 0.")
	fs.StringVar(&message, "termination-log", message, "File for the termination message.")
	fs.DurationVar(&timeout, "timeout", timeout, "How long the clouds may take to accept the tokens.")
	cmd.Flags().AddFlagSet(fs)
	cliflag.SetUsageAndHelpFunc(cmd, groups, width)
	return cmd
}

func runVerify(cmd *cobra.Command, warn bool, message string, timeout time.Duration) error {
	if timeout <= 0 {
		return fmt.Errorf("--timeout: got %v, want more than 0", timeout)
	}
	debug.SetMemoryLimit(verifyMemory)
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := exchange.NewClient("")
	if err != nil {
		return err
	}
	client.Timeout = exchange.AttemptTimeout
	log := func(line string) { _, _ = fmt.Fprintln(cmd.ErrOrStderr(), line) }
	v := &exchange.Verifier{Getenv: os.Getenv, ReadFile: readFile, Client: client, Timeout: timeout, Log: log}
	clouds := v.Clouds()
	if len(clouds) == 0 {
		log("the container has no variables of AWS, Azure or Google Cloud, so there is nothing to verify")
		return nil
	}
	log("presenting the tokens to " + strings.Join(clouds, ", "))
	problem := v.Run(ctx)
	if problem == nil {
		return nil
	}
	if err := os.WriteFile(message, []byte(problem.Error()), 0o600); err != nil {
		log(fmt.Sprintf("no termination message: %v", err))
	}
	if warn {
		log("--warn: the containers of the pod start anyway")
		return nil
	}
	return fmt.Errorf("verify: not all clouds accept the tokens of this pod:\n%w", problem)
}

// readFile reads at most limit bytes of a file.
func readFile(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, limit))
}
