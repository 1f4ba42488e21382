package cni

import (
	_ "embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed conf_present.md
var confPresentDoc string

// ConfPresent reports CNI configuration and links of other networks on nodes.
func ConfPresent() check.Check {
	return check.Check{
		ID:    "cni/conf-present",
		Title: "Configuration or links of another network are on a node",
		Doc:   confPresentDoc,
		Needs: []string{"source", "target", "nodes", "facts"},
		Run:   confPresent,
	}
}

func confPresent(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		for _, file := range facts.ConfFiles {
			if f, ok := judgeFile(pass, facts, file); ok {
				found = append(found, f)
			}
		}
		found = append(found, strangeLinks(pass, facts)...)
	}
	return found
}

// judgeFile reports the effect of a file in the configuration folder. A runtime uses the file that sorts first.
func judgeFile(pass *check.Pass, facts *cluster.NodeFacts, file string) (finding.Finding, bool) {
	own, active := pass.Source.Capabilities.ConfName,
		slices.ContainsFunc([]string{".conf", ".conflist", ".json"}, func(end string) bool {
			return strings.HasSuffix(file, end)
		})
	if file == own || !active {
		return finding.Finding{}, false // the source's, or a name that no runtime reads
	}
	f := finding.Finding{
		ID: "cni/conf-present", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
		Evidence: map[string]any{"file": file, "serving": own},
		Fix: "find the program that wrote it: Multus, service meshes and similar plugins keep such a file on " +
			"purpose, and need it. If no program uses it any more, on the node: mv " +
			shell.Word(path.Join(facts.ConfFolder(), file)) + " " + shell.Word(path.Dir(facts.ConfFolder())+"/") +
			"; its pods stay on their network until they are recreated",
	}
	switch {
	case file < own:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("%s sorts before %s: new pods on this node are not on %s",
			path.Join(facts.ConfFolder(), file), own, pass.Source.CNI)
	case file == pass.Target.Capabilities.ConfName:
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("the target's configuration %s already exists: the node would switch as soon as "+
			"the source's is removed", file)
	case pass.OneNetwork():
		f.Message = fmt.Sprintf(
			"%s does not belong to %s: it would serve new pods when %s's own is removed",
			path.Join(facts.ConfFolder(), file), pass.Source.CNI, pass.Source.CNI)
	default:
		f.Message = fmt.Sprintf("%s belongs to neither network: it would serve new pods when "+
			"both others are removed", path.Join(facts.ConfFolder(), file))
	}
	return f, true
}

// linksOf are the links that only one network creates.
var linksOf = map[string][]string{
	"calico": {"cali*", "vxlan.calico"}, "flannel": {"flannel.*"}, "weave": {"weave", "vethwe*", "vxlan-6784"},
	"cilium": {"cilium_*", "lxc*"}, "kube-router": {"kube-bridge"},
}

// strangeLinks reports links that only another network creates.
func strangeLinks(pass *check.Pass, facts *cluster.NodeFacts) []finding.Finding {
	if pass.Source.Untried != "" {
		return nil // the owner of the links is unknown
	}
	var found []finding.Finding
	for _, name := range slices.Sorted(maps.Keys(linksOf)) {
		if pass.Source.Runs(name) {
			continue
		}
		var names []string
		for _, link := range facts.Links {
			if step.Matches(linksOf[name], link.Name) &&
				!step.Matches(pass.Source.Capabilities.HostLinks, link.Name) {
				names = append(names, link.Name)
			}
		}
		if len(names) == 0 {
			continue
		}
		found = append(found, finding.Finding{
			ID: "cni/conf-present", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Message: fmt.Sprintf(
				"the node has links of %s (%s): its routes and rules may exist too, and attract traffic",
				name, strings.Join(names, ", ")),
			Evidence: map[string]any{"links": names},
			Fix: "check whether pods still use them: on the node, ip route show dev " + names[0] +
				". If none does, drain the node and restart it",
		})
	}
	return found
}
