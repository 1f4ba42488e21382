// Package check is the contract of preflight checks: a check is a value with an ID, a page and a pure function from a
// pass (the evidence) to findings. Helpers that several topics share belong here; what one topic knows does not.
package check

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Check is one question about a change.
type Check struct {
	// ID is stable, such as "cidr/overlap".
	ID string
	// Title is one line. Doc is the page in Markdown: what the check reads, the impact, and the fix.
	Title string
	Doc   string
	// Needs are the resources of the snapshot without which the check cannot answer, as named by Snapshot.Has, and
	// parts of the pass: "source", "target", "facts", "host" (the facts' part of that name), "rights" and "plan".
	Needs []string
	// Some are resources of which one is enough: the findings hold for those that the snapshot has, and the others are
	// reported as not checked.
	Some []string
	// Part returns which evidence is missing for some of the findings only; empty if none is. It may be nil.
	Part func(*Pass) string
	// Lacks returns what else is missing for an answer, beyond Needs; empty if nothing is. It may be nil.
	Lacks func(*Pass) string
	// Run judges the evidence. It does no IO, and returns findings without URL, which the runner adds.
	Run func(*Pass) []finding.Finding
}

// Pass is the evidence that checks are run on.
type Pass struct {
	Snapshot *cluster.Snapshot
	Change   v1alpha1.ChangeSpec
	// Source is the present network, Target the new one; either may be nil.
	Source *cni.Installation
	Target *cni.Installation
	// NoTarget is why Target is nil though the change names its manifest, as far as it is known.
	NoTarget string
	// Found is every CNI that was detected.
	Found []*cni.Installation
	// Manifest is the target's manifests as the user gave them.
	Manifest []unstructured.Unstructured
	// WhatIf is the cluster with its nodes' labels and taints after the change; nil if the change does not affect them.
	WhatIf *whatif.Result
	// Served is the registry's answer about the agent's image; nil if it was not asked.
	Served *Served

	// Steps are the steps of the plan; nil without one, and NoPlan says why.
	Steps  []step.Step
	NoPlan string

	memo map[string]any
}

// Served is a registry's answer about one image: the image's name with its digest, that there is no such image, or why
// the registry did not answer.
type Served struct {
	Pinned  string `json:"pinned"`
	Missing bool   `json:"missing"`
	Why     string `json:"why"`
}

// Memo computes a value from a pass once, for all checks that use it. It is not safe for concurrent use.
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
