// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// ParseSettings parses a configuration file of lanyard-webhook. An empty file results in the
// defaults. reservedAudiences lists audiences of the API server besides the common ones; no token
// may have one of them. The error names each mistake in the file.
func ParseSettings(config []byte, reservedAudiences []string) (*annotations.Settings, error) {
	return settings.Load(config, reservedAudiences)
}
