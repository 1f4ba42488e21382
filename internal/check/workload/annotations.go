package workload

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/check"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/finding"
)

//go:embed network_annotations.md
var networkAnnotationsDoc string

// NetworkAnnotations finds pods that ask something of their network that the target may not know.
func NetworkAnnotations() check.Check {
	return check.Check{
		ID:    "workload/network-annotations",
		Title: "A pod asks its network for something that the target may not give",
		Doc:   networkAnnotationsDoc,
		Needs: []string{"pods", "replicasets", "source"},
		Run:   networkAnnotations,
	}
}

// wish is what an annotation asks for.
type wish struct {
	of   string // the only network that knows it; empty when any may
	what string
}

func wishes() map[string]wish {
	return map[string]wish{
		"cni.projectcalico.org/ipAddrs":       {"calico", "a fixed address"},
		"cni.projectcalico.org/ipAddrsNoIpam": {"calico", "a fixed address"},
		"cni.projectcalico.org/floatingIPs":   {"calico", "a floating address"},
		"cni.projectcalico.org/ipv4pools":     {"calico", "an address of a certain pool"},
		"cni.projectcalico.org/ipv6pools":     {"calico", "an address of a certain pool"},
		"kubernetes.io/ingress-bandwidth":     {"", "a limit of its bandwidth, which takes the plugin bandwidth"},
		"kubernetes.io/egress-bandwidth":      {"", "a limit of its bandwidth, which takes the plugin bandwidth"},
		"k8s.v1.cni.cncf.io/networks":         {"", "further networks, which Multus attaches over the present configuration"},
		"v1.multus-cni.io/default-network":    {"", "another default network, by Multus"},
	}
}

func networkAnnotations(pass *check.Pass) []finding.Finding {
	target := pass.Change.To
	if target == "" || target == pass.Source.CNI {
		return nil // the same network goes on
	}
	known := wishes()
	keys := slices.Sorted(maps.Keys(known))
	owners := pass.Snapshot.Owners()
	seen := map[cluster.Owner]bool{}
	var found []finding.Finding
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		if len(pod.Annotations) == 0 || !check.Moves(pod) {
			continue
		}
		for _, key := range keys {
			value, asks := pod.Annotations[key]
			w := known[key]
			if !asks || w.of != "" && w.of != pass.Source.CNI && w.of != target {
				continue
			}
			owner := owners(pod)
			if seen[owner] {
				break
			}
			seen[owner] = true
			f := finding.Finding{
				ID: "workload/network-annotations", Severity: finding.Warn,
				Subject:  finding.Subject{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name},
				Message:  fmt.Sprintf("its pods ask for %s (%s=%s): make sure that %s is set up for it", w.what, key, value, target),
				Evidence: map[string]any{"annotation": key, "value": value, "pod": pod.Name},
				Fix:      "try it with a pod on the first node that is changed, or take the annotation out",
			}
			switch {
			case w.of == pass.Source.CNI:
				f.Severity = finding.Block
				f.Message = fmt.Sprintf("its pods ask for %s (%s=%s), which only %s knows: on %s they get any address, and who relies on it fails",
					w.what, key, value, w.of, target)
				f.Fix = "find out who relies on it (a firewall, a license, a DNS entry), and give it a Service or a new address there first"
			case w.of == target:
				f.Message = fmt.Sprintf("its pods ask for %s (%s=%s), which %s does not know and %s does: it comes into force, and a pod whose wish cannot be met does not start",
					w.what, key, value, pass.Source.CNI, target)
			}
			found = append(found, f)
			break
		}
	}
	return found
}
