// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package rawjson

import (
	"fmt"

	evanphx "github.com/evanphx/json-patch/v5"
)

// Apply applies a patch to the JSON of an object. A nil patch changes nothing.
func Apply(object, patch []byte) ([]byte, error) {
	if len(patch) == 0 {
		return object, nil
	}
	options := evanphx.NewApplyOptions()
	options.EscapeHTML = false
	operations, err := evanphx.DecodePatch(patch)
	if err == nil {
		object, err = operations.ApplyWithOptions(object, options)
	}
	if err != nil {
		return nil, fmt.Errorf("apply the patch: %w", err)
	}
	return object, nil
}
