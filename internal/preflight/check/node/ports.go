package node

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed ports.md
var portsDoc string

// Ports reports the ports and protocols between nodes that the target needs and the present network does not use.
func Ports() check.Check {
	return check.Check{
		ID:    "node/ports",
		Title: "The target needs ports or protocols between the nodes that the present network does not use",
		Doc:   portsDoc,
		Needs: []string{"source", "target", "host"},
		Run:   ports,
	}
}

// wants returns the ports and protocols of a network between nodes, by its encapsulation and its objects.
func wants(network *cni.Installation, objects []unstructured.Unstructured) []string {
	var all []string
	switch c := network.Capabilities; {
	case c.Encapsulation == "vxlan" && c.Port != 0:
		all = append(all, fmt.Sprintf("UDP %d (VXLAN)", c.Port))
	case c.Encapsulation == "ipip":
		all = append(all, "IP protocol 4 (IPIP)")
	case network.CNI == "weave":
		all = append(all, "TCP 6783 and UDP 6783-6784 (Weave)")
	}
	if network.CNI != "calico" {
		return all
	}
	if network.Capabilities.Encapsulation != "vxlan" {
		all = append(all, "TCP 179 (BGP)")
	}
	if slices.ContainsFunc(objects, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == "calico-typha"
	}) {
		all = append(all, "TCP 5473 (Typha)")
	}
	return all
}

func ports(pass *check.Pass) []finding.Finding {
	today := wants(pass.Source, nil)
	for i := range pass.Snapshot.Deployments {
		if pass.Snapshot.Deployments[i].Name == "calico-typha" {
			today = append(today, "TCP 5473 (Typha)")
		}
	}
	more := slices.DeleteFunc(wants(pass.Target, pass.Manifest), func(want string) bool {
		return slices.Contains(today, want)
	})
	if len(more) == 0 {
		return nil
	}
	f := finding.Finding{
		ID: "node/ports", Severity: finding.Info, Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI},
		Message: fmt.Sprintf("%s must be open between all nodes, and %s does not use it: no filter was "+
			"found on the nodes, but filters between them (security groups, firewalls) are not visible in the cluster",
			strings.Join(more, " and "), pass.Source.CNI),
		Evidence: map[string]any{"wanted": more},
		Fix: "open it in all filters between nodes before the change; otherwise the measured paths of the first " +
			"node fail, and that node is rolled back",
	}
	var filtered []string
	byFilter := map[string][]string{}
	for i := range pass.Snapshot.Facts {
		if facts := &pass.Snapshot.Facts[i]; len(facts.Host.Filters) > 0 {
			filtered = append(filtered, facts.Node)
			for _, filter := range facts.Host.Filters {
				byFilter[filter] = append(byFilter[filter], facts.Node)
			}
		}
	}
	if len(filtered) > 0 {
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("%s must be open between all nodes, and %s does not use it: filters on %s (%s) "+
			"drop what no rule allows, and whether a rule allows this is unknown",
			strings.Join(more, " and "), pass.Source.CNI, cluster.Count(len(filtered), "node"), check.Names(filtered))
		f.Evidence["filters"] = byFilter
	}
	return []finding.Finding{f}
}
