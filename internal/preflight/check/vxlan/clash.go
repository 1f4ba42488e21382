// Package vxlan checks the target's VXLAN: conflicts with other VXLANs on a node, and connection tracking of its port.
package vxlan

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

//go:embed clash.md
var clashDoc string

// Clash reports VXLANs that conflict with the target's.
func Clash() check.Check {
	return check.Check{
		ID:    "vxlan/clash",
		Title: "Two VXLANs with the same UDP port or VNI on one node",
		Doc:   clashDoc,
		Needs: []string{"source", "target"},
		Run:   clash,
	}
}

func clash(pass *check.Pass) []finding.Finding {
	target := pass.Target.Capabilities
	if target.Encapsulation != "vxlan" || !pass.Meet() {
		return nil
	}
	var found []finding.Finding
	if source := pass.Source.Capabilities; source.Encapsulation == "vxlan" {
		subject := finding.Subject{Kind: "Network", Name: pass.Source.CNI}
		found = append(found, compare(subject, pass.Source.CNI, source.Port, source.VNI, source.WholePort, target)...)
	}
	for _, facts := range pass.Snapshot.Facts {
		for _, link := range facts.Links {
			known := step.Matches(target.HostLinks, link.Name) ||
				step.Matches(pass.Source.Capabilities.HostLinks, link.Name)
			if link.VNI != 0 && !known {
				found = append(found, compare(finding.Subject{Kind: "Node", Name: facts.Node}, "the link "+link.Name,
					link.Port, link.VNI, false, target)...)
			}
		}
	}
	return found
}

func compare(subject finding.Subject, who string, port, vni int, whole bool,
	target cni.Capabilities) []finding.Finding {
	if port == 0 || port != target.Port {
		return nil // the kernel identifies a VXLAN by port and VNI together
	}
	f := finding.Finding{
		ID: "vxlan/clash", Subject: subject,
		Evidence: map[string]any{"port": port, "vni": vni, "targetPort": target.Port, "targetVNI": target.VNI},
		Fix: "give the target another port in its manifest, such as 4790 (Calico: FelixConfiguration vxlanPort, " +
			"vxlanVNI; Cilium: tunnel-port)",
	}
	if whole || target.WholePort {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("%s and the target both use VXLAN on UDP port %d, and one of them receives all "+
			"its packets, with any VNI: the kernel refuses the second link", who, port)
		return []finding.Finding{f}
	}
	if vni == target.VNI {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("%s and the target both use VXLAN with UDP port %d and VNI %d: "+
			"the kernel refuses the second link, and nodes would accept each other's packets", who, port, vni)
		return []finding.Finding{f}
	}
	f.Severity = finding.Warn
	f.Message = fmt.Sprintf("%s and the target both use VXLAN on UDP port %d (VNI %d and %d): "+
		"they share one socket, which works only while both links have the same options", who, port, vni, target.VNI)
	return []finding.Finding{f}
}
