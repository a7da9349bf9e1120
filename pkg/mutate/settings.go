// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"github.com/lanyard-dev/lanyard/internal/settings"
	"github.com/lanyard-dev/lanyard/pkg/annotations"
)

// ParseSettings returns the settings in a configuration file of lanyard-webhook; an empty file
// has the defaults. reservedAudiences are the audiences of the API server in addition to the
// common ones: no token may have one of them. The error names each mistake in the file.
func ParseSettings(config []byte, reservedAudiences []string) (*annotations.Settings, error) {
	return settings.Load(config, reservedAudiences)
}
