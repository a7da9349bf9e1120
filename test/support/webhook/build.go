// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build compiles lanyard-webhook into dir as it is shipped, or with the race detector. It returns
// the path of the binary.
func Build(ctx context.Context, dir string, race bool) (string, error) {
	binary, flag, cgo := filepath.Join(dir, "lanyard-webhook"), "-trimpath", "CGO_ENABLED=0"
	if race {
		flag, cgo = "-race", "CGO_ENABLED=1"
	}
	// Git refuses to read a checkout that belongs to another user, and no test needs the commit.
	build := exec.CommandContext(ctx, "go", "build", flag, "-buildvcs=false", "-o", binary, "github.com/lanyard-dev/lanyard/cmd/webhook")
	build.Env = append(build.Environ(), cgo)
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build lanyard-webhook: %w\n%s", err, output)
	}
	return binary, nil
}
