// Package taints checks the tolerations of workloads against the taints that a change leaves on nodes.
package taints

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed removed_in_use.md
var removedInUseDoc string

const id = "taints/removed-in-use"

// RemovedInUse reports workloads that a change of taints keeps off nodes, or lets onto them.
func RemovedInUse() check.Check {
	return check.Check{
		ID:    id,
		Title: "A change of taints keeps pods off nodes, or lets pods onto them",
		Doc:   removedInUseDoc,
		Needs: []string{"nodes", "daemonsets"},
		Lacks: func(pass *check.Pass) string {
			if pass.WhatIf == nil {
				return "the change affects no taints (--kubernetes-to, --replace-nodes)"
			}
			if !slices.ContainsFunc(pass.WhatIf.Effects, func(e whatif.Effect) bool { return e.What == whatif.Taint }) {
				return pass.WhatIf.Beyond
			}
			return ""
		},
		Run: removedInUse,
	}
}

func removedInUse(pass *check.Pass) []finding.Finding {
	named := map[string]bool{}
	var keys []string
	for _, e := range pass.WhatIf.Effects {
		if e.What == whatif.Taint {
			keys = append(keys, e.Key)
			for _, node := range e.Nodes {
				named[node] = true
			}
		}
	}
	var changed []int
	for i := range pass.WhatIf.Before.Nodes {
		if named[pass.WhatIf.Before.Nodes[i].Name] {
			changed = append(changed, i)
		}
	}
	var found []finding.Finding
	opened := map[string]bool{}
	var newcomers []string
	for _, w := range check.Templates(pass.Snapshot) {
		closed, open := compare(pass, w, changed)
		if len(closed) > 0 {
			found = append(found, repelled(pass, w, keys, closed))
		}
		if len(open) > 0 {
			newcomers = append(newcomers, w.Subject.Kind+" "+w.Subject.Namespace+"/"+w.Subject.Name)
		}
		for _, node := range open {
			opened[node] = true
		}
	}
	if len(newcomers) > 0 {
		found = append(found, finding.Finding{
			ID: id, Severity: finding.Warn, Subject: finding.Subject{Kind: "Taint", Name: keys[0]},
			Message: fmt.Sprintf(
				"the taint that keeps %s off %s is removed (%s): DaemonSets start pods there at once%s",
				cluster.Count(len(newcomers), "workload"), cluster.Count(len(opened), "node"), check.Names(newcomers),
				because(pass.WhatIf, keys)),
			Evidence: map[string]any{"workloads": newcomers, "nodes": len(opened)},
			Fix: "restore the taint if these workloads must stay off the nodes: kubectl taint " +
				"node NODE KEY=VALUE:NoSchedule",
		})
	}
	return found
}

// compare returns the nodes that a workload selects and whose taints it no longer tolerates, or begins to tolerate.
func compare(pass *check.Pass, w check.Template, changed []int) (closed, open []string) {
	choice := nodes.OfPod(w.Spec, w.Pointer)
	tolerations := w.Spec.Tolerations
	if w.Subject.Kind == "DaemonSet" {
		tolerations = append(slices.Clone(tolerations), daemonTolerations...)
	}
	for _, i := range changed {
		today, then := &pass.WhatIf.Before.Nodes[i], &pass.WhatIf.After.Nodes[i]
		if !choice.Picks(nil, today) {
			continue
		}
		was, is := nodes.Untolerated(today, tolerations) == nil, nodes.Untolerated(then, tolerations) == nil
		switch {
		case was && !is:
			closed = append(closed, today.Name)
		case is && !was:
			open = append(open, today.Name)
		}
	}
	return closed, open
}

// daemonTolerations are the tolerations of every DaemonSet's pods.
var daemonTolerations = []corev1.Toleration{
	{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeDiskPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodePIDPressure, Operator: corev1.TolerationOpExists},
	{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists},
}

// repelled reports a workload that no longer tolerates nodes.
func repelled(pass *check.Pass, w check.Template, keys, closed []string) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: finding.Warn, Subject: w.Subject,
		Message: fmt.Sprintf("it tolerates the present taints of %s, but not the new ones (%s): its pods there stay "+
			"until they are recreated, and new ones stay Pending%s",
			cluster.Count(len(closed), "node"), check.Names(closed), because(pass.WhatIf, keys)),
		Evidence: map[string]any{"nodes": closed, "tolerations": w.Spec.Tolerations},
	}
	if w.Subject.Kind == "DaemonSet" {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("it tolerates the present taints of %s, but not the new ones (%s): its pods there "+
			"stay, but are not replaced when they end or the DaemonSet is rolled out%s",
			cluster.Count(len(closed), "node"), check.Names(closed), because(pass.WhatIf, keys))
	}
	if e := pass.WhatIf.Because(whatif.Taint, keys); e != nil {
		f.Evidence["source"] = e.Source
	}
	if f.Fix = fix(pass, w, closed[0]); w.Pointer == "" {
		f.Fix = "its template is immutable: recreate it with a toleration for the new taints, or " +
			"let it end before the change"
	}
	return f
}

// fix adds a toleration for the new taint.
func fix(pass *check.Pass, w check.Template, node string) string {
	at := slices.IndexFunc(pass.WhatIf.After.Nodes, func(n corev1.Node) bool { return n.Name == node })
	t := nodes.Untolerated(&pass.WhatIf.After.Nodes[at], w.Spec.Tolerations)
	if t == nil {
		return ""
	}
	var value any = corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpExists, Effect: t.Effect}
	path := w.Pointer + "/tolerations/-"
	if len(w.Spec.Tolerations) == 0 {
		path, value = w.Pointer+"/tolerations", []any{value}
	}
	return fmt.Sprintf("kubectl -n %s patch %s %s --type json -p %s",
		shell.Word(w.Subject.Namespace), shell.Word(w.Resource), shell.Word(w.Subject.Name),
		shell.JSON([]nodes.Operation{{Op: "add", Path: path, Value: value}}))
}

func because(r *whatif.Result, keys []string) string {
	var all []string
	for i := range r.Effects {
		if e := &r.Effects[i]; e.What == whatif.Taint && slices.Contains(keys, e.Key) {
			all = append(all, e.String())
		}
	}
	return " (" + strings.Join(all, "; ") + ")"
}
