package load

import (
	_ "embed"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed weave.md
var weaveDoc string

// Weave reports nodes on which Weave Net's router drops frames.
func Weave() check.Check {
	lacks, part := lacking(forwards, "weave.PacketsDropped", "the router of Weave Net",
		"curl -H 'Accept: application/json' 127.0.0.1:6784/report on the node shows what it serves")
	return check.Check{
		ID:    "load/weave",
		Title: "Weave Net's router drops frames",
		Doc:   weaveDoc,
		Needs: []string{"nodes", "daemonsets"},
		Lacks: lacks,
		Part:  part,
		Run:   weave,
	}
}

// forwards reports whether Weave Net runs without its fast data path: then its router forwards every frame, and counts.
func forwards(pass *check.Pass) bool {
	return slices.ContainsFunc(pass.Found, func(i *cni.Installation) bool {
		return i.CNI == "weave" && i.Capabilities.Encapsulation == "sleeve"
	})
}

func weave(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		if !forwards(pass) || facts.Host == nil || facts.Host.Load == nil {
			continue
		}
		load := facts.Host.Load
		dropped, received := load.Counters["weave.PacketsDropped"], load.Counters["weave.PacketsReceived"]
		f := finding.Finding{ID: "load/weave", Subject: finding.Subject{Kind: "Node", Name: facts.Node},
			Evidence: map[string]any{"seconds": load.Seconds, "dropped": dropped.Sample,
				"droppedSinceStart": dropped.Boot, "receivedSinceStart": received.Boot},
			Fix: "give the router more processor time (the CPU request of the container weave), or use its fast data " +
				"path: remove WEAVE_NO_FASTDP where the kernel has the module openvswitch"}
		switch {
		case dropped.Sample > 0:
			f.Severity = finding.Warn
			f.Message = fmt.Sprintf("the router dropped %d frames while the agent looked, in %.0f s: it is too slow "+
				"for the traffic between nodes, and with more of it, it drops more", dropped.Sample, load.Seconds)
		case dropped.Boot > 0:
			f.Severity = finding.Info
			f.Message = fmt.Sprintf("the router dropped %d frames since it started, and forwarded %d: at busier times "+
				"it is too slow for the traffic between nodes", dropped.Boot, received.Boot)
		default:
			continue
		}
		found = append(found, f)
	}
	return found
}
