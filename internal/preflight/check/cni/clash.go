package cni

import (
	_ "embed"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed clash.md
var clashDoc string

const clashID = "cni/clash"

// Clash reports resources that both networks would own on a node, and why single nodes cannot be switched.
func Clash() check.Check {
	return check.Check{
		ID:    clashID,
		Title: "Two networks that cannot run on the same node",
		Doc:   clashDoc,
		Needs: []string{"source", "target"},
		Run:   clash,
	}
}

func clash(pass *check.Pass) []finding.Finding {
	if !pass.Meet() {
		return nil
	}
	var found []finding.Finding
	for _, c := range joint.Clashes(*pass.Source, *pass.Target) {
		if c.Check == clashID {
			found = append(found, finding.Finding{ID: clashID, Severity: finding.Block,
				Subject: finding.Subject{Kind: "Network", Name: pass.Target.CNI}, Message: c.Message,
				Evidence: map[string]any{"clash": c.ID}, Fix: c.Hint})
		}
	}
	return found
}
