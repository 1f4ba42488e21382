package cni

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed unknown.md
var unknownDoc string

const unknownID = "cni/unknown"

// untouched is the fix for a network that Theseus does not change.
const untouched = "leave it as it is. To change it, " + cni.Elsewhere

// Unknown reports networks and plugins that Theseus does not know.
func Unknown() check.Check {
	return check.Check{
		ID:    unknownID,
		Title: "A network, or a part of one, that Theseus does not know",
		Doc:   unknownDoc,
		Needs: []string{"nodes", "daemonsets"},
		Run:   unknown,
	}
}

func unknown(pass *check.Pass) []finding.Finding {
	known := networks(pass)
	strangers := cni.Strangers(pass.Snapshot, known)
	if len(known) == 0 {
		return nothingKnown(pass, strangers)
	}
	var found []finding.Finding
	for _, network := range known {
		if network.Untried == "" || network == pass.Target {
			continue
		}
		f := finding.Finding{ID: unknownID, Severity: finding.Info,
			Subject: finding.Subject{Kind: "Network", Name: network.CNI}, Message: network.Untried,
			Fix: "leave it as it is. To change it, " + network.Way()}
		if pass.Change.To != "" && !pass.InPlace() || upgrades(pass) && network.Instead != "" {
			f.Severity = finding.Block
		}
		found = append(found, f)
	}
	told := map[string]bool{}
	for _, stranger := range strangers {
		told[stranger.Name] = true
		found = append(found, beside(pass, known[0], stranger))
	}
	return append(found, chained(pass, told)...)
}

// beside is a network, or a plugin, next to a known network.
func beside(pass *check.Pass, network *cni.Installation, stranger cni.Foreign) finding.Finding {
	f := finding.Finding{ID: unknownID, Severity: finding.Warn,
		Subject: finding.Subject{Kind: "Network", Name: network.CNI}}
	switch {
	case stranger.Chained:
		f.Message = fmt.Sprintf("in addition to %s, %s works on its pods: %s", network.Title(), stranger, stranger.Why)
		f.Fix = "leave it as it is. To change the network, " + stranger.Instead
		if pass.Change.To != "" && !pass.InPlace() && pass.Change.Strategy != "mirror" {
			f.Severity = finding.Block
		}
	case stranger.Why != "":
		f.Message = fmt.Sprintf("in addition to %s, %s is here, which Theseus cannot replace: %s",
			network.Title(), stranger, stranger.Why)
		f.Fix = "leave both as they are. To change the network, " + stranger.Instead
	default:
		f.Message = fmt.Sprintf("in addition to %s, %s: it is a second network, or is chained to the first, and how "+
			"a change would affect it is unknown", network.CNI, stranger)
		f.Fix = "find out what it is, and leave it as it is; a chained plugin must be set up for the new network too"
	}
	return f
}

// chained reports plugins of the present network's configuration that follow the first one and that the target's does
// not have. Those whose DaemonSet was reported are left out.
func chained(pass *check.Pass, told map[string]bool) []finding.Finding {
	if pass.Source == nil || pass.Target == nil || !pass.Meet() || pass.InPlace() {
		return nil
	}
	plugins := slices.Clone(pass.Source.Capabilities.Chained)
	for i := range pass.Snapshot.Facts {
		if conf, ok := pass.Snapshot.Facts[i].Serving(); ok && conf.File == pass.Source.Capabilities.ConfName {
			plugins = append(plugins, cni.Chained(conf.Plugins)...)
		}
	}
	slices.Sort(plugins)
	var found []finding.Finding
	for _, plugin := range slices.Compact(plugins) {
		name, what, instead := cni.LostPlugin(plugin)
		if slices.Contains(pass.Target.Capabilities.Chained, plugin) || told[name] {
			continue
		}
		f := finding.Finding{ID: unknownID, Severity: finding.Block,
			Subject: finding.Subject{Kind: "Network", Name: pass.Source.CNI},
			Message: fmt.Sprintf("the configuration of %s chains the plugin %s, and that of %s does not: %s",
				pass.Source.Title(), plugin, pass.Target.Title(), what),
			Evidence: map[string]any{"plugin": plugin}, Fix: instead}
		if plugin == "bandwidth" && !limited(pass.Snapshot) {
			f.Severity, f.Message = finding.Warn, f.Message+"; no pod has one of them now"
		}
		found = append(found, f)
	}
	return found
}

// limited reports whether a pod asks for a limited bandwidth.
func limited(snapshot *cluster.Snapshot) bool {
	return slices.ContainsFunc(snapshot.Pods, func(pod corev1.Pod) bool {
		return pod.Annotations["kubernetes.io/ingress-bandwidth"] != "" ||
			pod.Annotations["kubernetes.io/egress-bandwidth"] != ""
	})
}

// networks returns the detected networks and the present one, since the source in a plan may not be visible in the API.
func networks(pass *check.Pass) []*cni.Installation {
	all := slices.Clone(pass.Found)
	if pass.Source != nil &&
		!slices.ContainsFunc(all, func(n *cni.Installation) bool { return n.CNI == pass.Source.CNI }) {
		all = append(all, pass.Source)
	}
	return all
}

// nothingKnown blocks the change of an unknown network.
func nothingKnown(pass *check.Pass, strangers []cni.Foreign) []finding.Finding {
	if len(pass.Snapshot.Nodes) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: unknownID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: "unknown"},
		Message: "no network that Theseus changes is in this cluster",
		Fix:     untouched,
	}
	if pass.Change.To != "" {
		f.Severity = finding.Block
	}
	var seen []string
	for _, stranger := range strangers {
		seen = append(seen, stranger.String())
	}
	if len(seen) > 0 {
		f.Message += ", but " + strings.Join(seen, "; ")
		f.Evidence = map[string]any{"seen": seen}
	}
	for _, stranger := range strangers {
		if stranger.Why != "" && !stranger.Chained {
			f.Message += "; Theseus cannot replace " + stranger.Name + ": " + stranger.Why
			f.Fix = "leave it as it is. To change it, " + stranger.Instead
			return []finding.Finding{f}
		}
	}
	if len(pass.Snapshot.Facts) == 0 {
		f.Fix = "look at the nodes too, since a network of files is visible only there: " +
			"theseus snapshot --nodes --agent-image IMAGE -o snapshot.json; " + f.Fix
	}
	return []finding.Finding{f}
}
