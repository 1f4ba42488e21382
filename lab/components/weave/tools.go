//go:build tools

// Package weave pins the Weave Net programs that the lab builds.
package weave

import (
	_ "github.com/weaveworks/weave/prog/kube-utils"
	_ "github.com/weaveworks/weave/prog/weave-npc"
	_ "github.com/weaveworks/weave/prog/weaver"
	_ "github.com/weaveworks/weave/prog/weaveutil"
)
