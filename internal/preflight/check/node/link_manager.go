package node

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
)

//go:embed link_manager.md
var linkManagerDoc string

// LinkManagers reports daemons that would remove the target's routes, rules or links.
func LinkManagers() check.Check {
	return check.Check{
		ID:    "node/link-manager",
		Title: "systemd-networkd or NetworkManager would remove the networks' routes or links",
		Doc:   linkManagerDoc,
		Needs: []string{"target", "nodes", "host"},
		Run:   linkManagers,
	}
}

func linkManagers(pass *check.Pass) []finding.Finding {
	var foreign []string
	managed := map[string][]string{} // nodes, by their managed links
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		for _, manager := range facts.Host.Managers {
			if manager.Foreign {
				foreign = append(foreign, facts.Node)
			}
			if links := manages(manager.Unmanaged,
				pass.Target.Capabilities.HostLinks); manager.Name == "NetworkManager" && len(links) > 0 {
				key := strings.Join(links, ", ")
				managed[key] = append(managed[key], facts.Node)
			}
		}
	}
	var found []finding.Finding
	if len(foreign) > 0 {
		found = append(found, finding.Finding{
			ID: "node/link-manager", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: foreign[0]},
			Message: fmt.Sprintf("systemd-networkd removes routes and rules of other programs on %s (%s): each of "+
				"its restarts, for example by a package update, may remove the routes of pods",
				cluster.Count(len(foreign), "node"), check.Names(foreign)),
			Evidence: map[string]any{"nodes": foreign},
			Fix: "on the nodes, in /etc/systemd/networkd.conf.d/10-foreign.conf: [Network] ManageForeignRoutes=no " +
				"ManageForeignRoutingPolicyRules=no; then restart systemd-networkd before the change, " +
				"while the present network can still restore its routes",
		})
	}
	for _, links := range slices.Sorted(maps.Keys(managed)) {
		nodes := managed[links]
		found = append(found, finding.Finding{
			ID: "node/link-manager", Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: nodes[0]},
			Message: fmt.Sprintf("NetworkManager manages the target's links %s on %s (%s): it may change their "+
				"addresses and routes at any time",
				links, cluster.Count(len(nodes), "node"), check.Names(nodes)),
			Evidence: map[string]any{"nodes": nodes, "links": links},
			Fix: "on the nodes, in /etc/NetworkManager/conf.d/theseus.conf: [keyfile] " +
				"unmanaged-devices+=interface-name:" +
				strings.ReplaceAll(links, ", ", ";interface-name:") + "; then: nmcli general reload",
		})
	}
	return found
}

// manages returns those of a network's links that no pattern excludes.
func manages(unmanaged, links []string) []string {
	return slices.DeleteFunc(slices.Clone(links), func(link string) bool {
		return slices.ContainsFunc(unmanaged, func(pattern string) bool {
			// a link that ends in * is a prefix, which a pattern with * matches
			matched, err := path.Match(pattern, link)
			return err == nil && matched
		})
	})
}
