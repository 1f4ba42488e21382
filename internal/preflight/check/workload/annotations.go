package workload

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed network_annotations.md
var networkAnnotationsDoc string

// NetworkAnnotations reports pods that request something from their network that the target may not know.
func NetworkAnnotations() check.Check {
	return check.Check{
		ID:    "workload/network-annotations",
		Title: "A pod requests something from its network that the target may not provide",
		Doc:   networkAnnotationsDoc,
		Needs: []string{"pods", "replicasets", "namespaces", "source"},
		Run:   networkAnnotations,
	}
}

// wish is what an annotation requests.
type wish struct {
	of   string // the only network that knows it; empty when any may
	what string
	left string // its effect if pods get another pool of the present network; empty if it stays the same
}

func wishes() map[string]wish {
	all := map[string]wish{
		"kubernetes.io/ingress-bandwidth": {"", "a bandwidth limit, which needs the plugin bandwidth", ""},
		"kubernetes.io/egress-bandwidth":  {"", "a bandwidth limit, which needs the plugin bandwidth", ""},
		"k8s.v1.cni.cncf.io/networks": {"",
			"additional networks, which Multus attaches over the present configuration", ""},
		"v1.multus-cni.io/default-network": {"", "another default network, by Multus", ""},
	}
	for _, ask := range calico.Asks() {
		all[ask.Annotation] = wish{"calico", ask.What, ask.Left}
	}
	return all
}

// asker is the origin of annotations: a workload, of whose pods one is named, or a namespace.
type asker struct {
	owner       cluster.Owner
	annotations map[string]string
	pod         string
}

func askers(pass *check.Pass) []asker {
	var all []asker
	for i := range pass.Snapshot.Namespaces {
		namespace := &pass.Snapshot.Namespaces[i]
		asks := map[string]string{}
		for _, ask := range calico.Asks() {
			if value, asked := namespace.Annotations[ask.Annotation]; asked && ask.Namespaces {
				asks[ask.Annotation] = value
			}
		}
		all = append(all, asker{owner: cluster.Owner{Kind: "Namespace", Name: namespace.Name}, annotations: asks})
	}
	owners := pass.Snapshot.Owners()
	for i := range pass.Snapshot.Pods {
		if pod := &pass.Snapshot.Pods[i]; len(pod.Annotations) > 0 && check.Moves(pod) {
			all = append(all, asker{owners(pod), pod.Annotations, pod.Name})
		}
	}
	return all
}

func networkAnnotations(pass *check.Pass) []finding.Finding {
	if pass.Change.Pool == "" && (pass.Change.To == "" || pass.Change.To == pass.Source.CNI) {
		return nil // the network and the addresses stay
	}
	known := wishes()
	keys := slices.Sorted(maps.Keys(known))
	seen := map[cluster.Owner]bool{}
	var found []finding.Finding
	for _, a := range askers(pass) {
		for _, key := range keys {
			value, asks := a.annotations[key]
			if !asks || seen[a.owner] {
				continue
			}
			if f := unmet(pass, known[key], key+"="+value); f != nil {
				seen[a.owner] = true
				f.Subject = finding.Subject{Kind: a.owner.Kind, Namespace: a.owner.Namespace, Name: a.owner.Name}
				f.Evidence = map[string]any{"annotation": key, "value": value}
				if a.pod != "" {
					f.Evidence["pod"] = a.pod
				}
				found = append(found, *f)
			}
		}
	}
	return found
}

// unmet reports a wish that the change affects; nil if it is met as before, or never was.
func unmet(pass *check.Pass, w wish, asked string) *finding.Finding {
	source, target := pass.Source.CNI, pass.Change.To
	f := &finding.Finding{ID: "workload/network-annotations", Severity: finding.Block}
	switch {
	case pass.Change.Pool != "" && w.left == "", w.of != "" && w.of != source && w.of != target:
		return nil
	case pass.Change.Pool != "":
		f.Message = fmt.Sprintf("its pods request %s (%s): %s", w.what, asked, w.left)
		f.Fix = "first change everything that relies on it (a firewall, a license, a DNS entry), and remove the " +
			"annotation before you plan; after the change the pods can request the new pool or an address of it"
	case w.of == source:
		f.Message = fmt.Sprintf("its pods request %s (%s), which only %s knows: on %s they get any address, and "+
			"clients that rely on it fail", w.what, asked, w.of, target)
		f.Fix = "find out what relies on it (a firewall, a license, a DNS entry), and switch that to a " +
			"Service or a new address first"
	default:
		f.Severity = finding.Warn
		f.Message = fmt.Sprintf("its pods request %s (%s): make sure that %s is set up for it", w.what, asked, target)
		if w.of == target {
			f.Message = fmt.Sprintf("its pods request %s (%s), which %s ignores but %s supports: it takes effect, "+
				"and a pod whose request cannot be met does not start", w.what, asked, source, target)
		}
		f.Fix = "try it with a pod on the first node that is changed, or remove the annotation"
	}
	return f
}
