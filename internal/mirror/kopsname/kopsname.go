// Package kopsname cuts names as kops does, so that what it made in the cloud can be found again.
//
// The package is pure.
package kopsname

import (
	"encoding/base32"
	"hash/fnv"
	"strings"
)

// The lengths to which kops cuts names, in bytes (pkg/model/iam, awsup.GetResourceName32, pkg/model/names.go of kops).
const (
	MaxRole     = 64
	MaxResource = 32
	MaxQueue    = 75

	hashLength = 6
)

// Truncate cuts a name that is longer than length, with a hash of the whole at its end.
func Truncate(name string, length int) string {
	if len(name) <= length {
		return name
	}
	return Hashed(name, length)
}

// Hashed is a name with a hash of the whole at its end, cut to length where it is longer.
func Hashed(name string, length int) string {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	hash := strings.ToLower(base32.HexEncoding.EncodeToString(sum.Sum(nil)))[:hashLength]
	return name[:min(len(name), length-hashLength-1)] + "-" + hash
}
