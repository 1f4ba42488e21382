// Package check is the contract of preflight checks: a check is a value with a name, a text and a pure
// function from a pass (the evidence) to findings.
package check

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Check is one question about a change.
type Check struct {
	// ID is stable, such as "cidr/overlap".
	ID string
	// Title is one line, Doc the page: what it looks at, what follows, how to fix it (Markdown).
	Title string
	Doc   string
	// Needs are the resources of the snapshot without which the check cannot answer, as Snapshot.Has
	// names them; "source", "target", "facts", "host" (the facts' part of that name) and "rights" stand for what a pass
	// may lack.
	Needs []string
	// Some are resources of which one is enough to look: what it says holds for those that are there, and that the others were not
	// checked is said besides.
	Some []string
	// Lacks says what else is missing for an answer, beyond Needs; empty when nothing is. It may be nil.
	Lacks func(*Pass) string
	// Run looks at the evidence. It never does IO, and returns findings without URL, which the runner adds.
	Run func(*Pass) []finding.Finding
}

// Pass is the evidence that checks are run on.
type Pass struct {
	Snapshot *cluster.Snapshot
	Change   v1alpha1.ChangeSpec
	// Source is the network in place, Target the one to come; either may be nil.
	Source *cni.Installation
	Target *cni.Installation
	// Found is every CNI that was detected.
	Found []*cni.Installation
	// Manifest is the target's manifests as the user gave them.
	Manifest []unstructured.Unstructured
	// WhatIf is the cluster as the change would leave its nodes' labels and taints; nil when it leaves them alone.
	WhatIf *whatif.Result
	// Served is what the registry of the agent's image says of it; nil where it was not asked.
	Served *Served

	memo map[string]any
}

// Served is a registry's answer about one image: the image's name with its digest, that there is no such image, or why the registry
// did not tell.
type Served struct {
	Pinned  string `json:"pinned"`
	Missing bool   `json:"missing"`
	Why     string `json:"why"`
}

// Memo makes something out of a pass once, for all the checks that look at it. A pass is not used by several
// goroutines.
func Memo[T any](p *Pass, key string, make func() T) T {
	if made, ok := p.memo[key].(T); ok {
		return made
	}
	made := make()
	if p.memo == nil {
		p.memo = map[string]any{}
	}
	p.memo[key] = made
	return made
}
