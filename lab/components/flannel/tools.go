//go:build tools

// Package flannel pins the flannel daemon that the lab builds.
package flannel

import _ "github.com/flannel-io/flannel"
