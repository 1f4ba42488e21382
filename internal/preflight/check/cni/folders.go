package cni

import (
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed folders.md
var foldersDoc string

const foldersID = "cni/folders"

// Folders compares the folders that a manifest writes to with those that the nodes' runtimes read.
func Folders() check.Check {
	return check.Check{
		ID:    foldersID,
		Title: "A node's runtime reads CNI files from another folder than the manifest writes to",
		Doc:   foldersDoc,
		Needs: []string{"source", "target", "nodes"},
		Some:  []string{"facts", "nodes"},
		Part: func(pass *check.Pass) string {
			for i := range pass.Snapshot.Facts {
				if pass.Snapshot.Facts[i].Folders == nil {
					return "the facts of node " + pass.Snapshot.Facts[i].Node +
						" are of an older agent: run theseus snapshot --nodes again"
				}
			}
			return ""
		},
		Run: otherFolders,
	}
}

func otherFolders(pass *check.Pass) []finding.Finding {
	confs, plugins, handlers := map[string][]string{}, map[string][]string{}, map[string][]string{}
	if pass.OneNetwork() && pass.Target.ConfFolder == pass.Source.ConfFolder &&
		pass.Target.PluginFolder == pass.Source.PluginFolder {
		return nil // the change touches none of them
	}
	if len(pass.Snapshot.Facts) == 0 && pass.Steps == nil {
		return compareWithSource(pass) // a plan that exists may have been made with facts
	}
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		folders := facts.Folders
		if folders == nil {
			continue
		}
		if f, ok := untold(pass, facts); ok {
			found = append(found, f)
		}
		if folders.Conf == "" {
			continue
		}
		if to := pass.Target.ConfFolder; to != "" && !folders.Reads(to) {
			confs[folders.Conf] = append(confs[folders.Conf], facts.Node)
		}
		if to := pass.Target.PluginFolder; to != "" && !folders.Searches(to) {
			list := strings.Join(folders.Plugins, ", ")
			plugins[list] = append(plugins[list], facts.Node)
		}
		for name, folder := range folders.Handlers {
			key := name + " from " + folder
			handlers[key] = append(handlers[key], facts.Node)
		}
	}
	found = append(found, elsewhere(pass, "CNI configuration", pass.Target.ConfFolder, "reads", confs)...)
	found = append(found, elsewhere(pass, "plugins", pass.Target.PluginFolder, "searches", plugins)...)
	for _, key := range slices.Sorted(maps.Keys(handlers)) {
		name, folder, _ := strings.Cut(key, " from ")
		found = append(found, finding.Finding{
			ID: foldersID, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
			Message: fmt.Sprintf("pods of the runtime handler %s get their network from %s, in which Theseus changes "+
				"nothing: %s", name, folder, nodesOf(handlers[key])),
			Evidence: map[string]any{"handler": name, "folder": folder, "nodes": handlers[key]},
			Fix: "take cni_conf_dir out of the handler's settings in containerd's configuration and restart " +
				"containerd, node by node; or accept it, if no pod has such a RuntimeClass",
		})
	}
	return found
}

// compareWithSource compares the target's folder with that of the source's agents, if no node was asked: the source's
// serves pods, so the runtimes read it.
func compareWithSource(pass *check.Pass) []finding.Finding {
	own, to := pass.Source.ConfFolder, pass.Target.ConfFolder
	if own == "" || to == "" || own == to {
		return nil
	}
	return []finding.Finding{{
		ID: foldersID, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
		Message: fmt.Sprintf("the manifest writes its CNI configuration to %s, but the agents of %s to %s, from "+
			"which the container runtime takes it", to, pass.Source.CNI, own),
		Evidence: map[string]any{"manifest": to, "source": own},
		Fix:      "ask the runtimes, then write their folders into the manifest: theseus snapshot --nodes",
	}}
}

// untold reports a runtime that did not tell its folders. The defaults were assumed; they are probably right if the
// source's configuration is there.
func untold(pass *check.Pass, facts *cluster.NodeFacts) (finding.Finding, bool) {
	if facts.Folders.Problem == "" {
		return finding.Finding{}, false
	}
	f := finding.Finding{
		ID: foldersID, Severity: finding.Block, Subject: finding.Subject{Kind: "Node", Name: facts.Node},
		Message:  "it is unknown from which folder the runtime takes CNI configurations: " + facts.Folders.Problem,
		Evidence: map[string]any{"folders": facts.Folders},
		Fix: "start the node's container runtime, then run theseus snapshot --nodes again; if the kubelet uses " +
			"another socket, say so with its flag --container-runtime-endpoint",
	}
	if facts.Folders.Conf != "" && slices.Contains(facts.ConfFiles, pass.Source.Capabilities.ConfName) {
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("the runtime did not tell from which folder it takes CNI configurations (%s): %s is "+
			"assumed, since %s is there", facts.Folders.Problem, facts.Folders.Conf, pass.Source.Capabilities.ConfName)
	}
	return f, true
}

// elsewhere reports files that go to another folder than the nodes' runtimes use; the map has the nodes by the folders
// that theirs uses.
func elsewhere(pass *check.Pass, what, to, verb string, used map[string][]string) []finding.Finding {
	if len(used) == 0 {
		return nil
	}
	var parts []string
	var nodes []string
	folders := slices.Sorted(maps.Keys(used))
	for _, folder := range folders {
		parts = append(parts, fmt.Sprintf("%s on %s", folder, nodesOf(used[folder])))
		nodes = append(nodes, used[folder]...)
	}
	f := finding.Finding{
		ID: foldersID, Severity: finding.Block, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
		Message: fmt.Sprintf("the manifest writes its %s to %s, but the container runtime %s %s",
			what, to, verb, strings.Join(parts, ", and ")),
		Evidence: map[string]any{"manifest": to, "runtime": used},
	}
	first, _, _ := strings.Cut(folders[0], ", ")
	switch {
	case len(folders) > 1 || len(nodes) < len(pass.Snapshot.Facts):
		f.Fix = "a DaemonSet writes to the same folder on every node: give the runtimes of all nodes the same " +
			"folders first, node by node, then write them into the manifest"
	case pass.Target.Maker != nil:
		f.Fix = "Theseus installs Calico's operator with the default folders only: give the release's manifest " +
			"without the operator, with hostPath " + shell.Word(first)
	case !plainPath.MatchString(to) || !plainPath.MatchString(first):
		f.Fix = "write the runtime's folder into the manifest: hostPath " + shell.Word(first)
	default:
		f.Fix = "in a copy of the manifest: " + shell.Words("sed", "-i",
			"s|path: *"+to+"/*$|path: "+first+"|", "MANIFEST")
	}
	return []finding.Finding{f}
}

// plainPath is of paths that mean nothing but themselves to sed, whose commands may start programs. A node may tell any
// text.
var plainPath = regexp.MustCompile(`^[A-Za-z0-9/._-]+$`)

// nodesOf counts and names nodes.
func nodesOf(names []string) string {
	return fmt.Sprintf("%s (%s)", cluster.Count(len(names), "node"), check.Names(names))
}
