// Package typha checks Typha, which stands between Calico's agents and the API server.
package typha

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed skew.md
var skewDoc string

const id = "typha/skew"

// Skew finds Typhas and agents whose versions do not go together, now or on the way of an upgrade.
func Skew() check.Check {
	return check.Check{
		ID:    id,
		Title: "Typha and calico-node have versions that refuse each other",
		Doc:   skewDoc,
		Needs: []string{"deployments", "daemonsets"},
		Run:   skew,
	}
}

// boundary is a minor version of Calico 3: no Typha from it on goes with agents from before it. The other way round all go: an
// older Typha is refused only where it does not say SupportsNodeResourceUpdates (typha/pkg/syncclient), which all since v3.22 do,
// and agents from v3.32 on read the keys of policies that older ones send (parseLegacyPolicyName in libcalico-go/lib/backend/model).
type boundary struct {
	minor uint
	why   string // with one verb for the agents' version
}

// boundaries are the known ones, the last first. From v3.32 on Typha ends the connection of whoever does not say
// SupportsModernPolicyKeys, as no agent before does (typha/pkg/syncserver of v3.32.0, v3.32.1 and release-v3.33;
// projectcalico/calico issue 13698, tigera/operator 4986 and 5110). Under Typha of v3.23 agents of v3.22 lost readiness; it refuses
// none, and what it sends is what they could not read (projectcalico/calico issues 6294 and 6526).
func boundaries() []boundary {
	return []boundary{{32, "refuses agents of %s"}, {23, "sends what agents of %s cannot read"}}
}

// between is the boundary that the version of an agent is below, and that of a Typha is not; nil where there is none.
func between(agent, typha *version.Version) *boundary {
	for _, b := range boundaries() {
		if agent.Major() == 3 && agent.Minor() < b.minor && typha.Major() == 3 && b.minor <= typha.Minor() {
			return &b
		}
	}
	return nil
}

// part is Typha or the agents, as they run or will run.
type part struct {
	subject finding.Subject
	tag     string
	version *version.Version // nil when the tag says none
}

func skew(pass *check.Pass) []finding.Finding {
	var typhas, agents []part
	for i := range pass.Snapshot.Deployments {
		d := &pass.Snapshot.Deployments[i]
		typhas = append(typhas, parts("Deployment", d.Namespace, d.Name, "calico-typha", &d.Spec.Template.Spec)...)
	}
	for i := range pass.Snapshot.DaemonSets {
		d := &pass.Snapshot.DaemonSets[i]
		agents = append(agents, parts("DaemonSet", d.Namespace, d.Name, "calico-node", &d.Spec.Template.Spec)...)
	}
	found := compare(typhas, agents, "runs")
	newTyphas, newAgents := fromManifest(pass)
	if len(pass.Snapshot.OtherOf("operator.tigera.io", "Installation")) > 0 {
		return append(found, byOperator(pass, typhas, agents)...)
	}
	found = append(found, compare(newTyphas, newAgents, "is to run")...)
	// The manifest replaces Typha at once and the agents one after another: new Typhas serve old agents for a while.
	for _, typha := range newTyphas {
		for _, agent := range agents {
			if typha.tag != agent.tag {
				f := differ(typha, agent, "is to run")
				f.Fix = inTurn(f, typha, agent)
				found = append(found, f)
			}
		}
	}
	return found
}

// inTurn says in which order a manifest's Typha and agents come, where they come one after another as in a plan.
func inTurn(f finding.Finding, typha, agent part) string {
	switch {
	case f.Severity == finding.Block:
		return "keep Typha at its version until every calico-node is new. A plan of Theseus does: for it say --accept " + id + `="agents first". ` +
			"By hand apply the DaemonSet alone first, wait for its roll-out, then Typha"
	case typha.version != nil && agent.version != nil && typha.version.LessThan(agent.version):
		return "bring both to one version: Typha first, since it is the older one, and then calico-node, node by node, as a plan of Theseus does"
	}
	return f.Fix
}

// byOperator compares the Typha that another release of Calico's operator brings at once with the agents of now.
func byOperator(pass *check.Pass, typhas, agents []part) []finding.Finding {
	tag := cmp.Or(calico.Rendered(pass.Manifest), pass.Change.CNIVersion)
	if tag == "" {
		return nil
	}
	typhas = slices.Clone(typhas)
	for i := range typhas {
		typhas[i].tag = tag
		typhas[i].version, _ = version.ParseSemantic(tag)
	}
	found := compare(typhas, agents, "is to run")
	for i := range found {
		found[i].Fix = "look at the release notes of the two; where Typha refuses the agents, take another release of the operator: it brings Typha before them, and nothing changes that"
	}
	return found
}

func fromManifest(pass *check.Pass) (typhas, agents []part) {
	for _, object := range pass.Manifest {
		var d appsv1.Deployment // a DaemonSet has its template in the same place
		if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": map[string]any{"template": template(object.Object)}}, &d) != nil {
			continue
		}
		typhas = append(typhas, parts(object.GetKind(), object.GetNamespace(), object.GetName(), "calico-typha", &d.Spec.Template.Spec)...)
		agents = append(agents, parts(object.GetKind(), object.GetNamespace(), object.GetName(), "calico-node", &d.Spec.Template.Spec)...)
	}
	return typhas, agents
}

func template(object map[string]any) any {
	spec, _ := object["spec"].(map[string]any)
	return spec["template"]
}

// parts finds a container by its name.
func parts(kind, namespace, name, container string, spec *corev1.PodSpec) []part {
	for i := range spec.Containers {
		if spec.Containers[i].Name != container {
			continue
		}
		p := part{subject: finding.Subject{Kind: kind, Namespace: namespace, Name: name}, tag: cluster.ImageOf(spec.Containers[i].Image).Tag}
		p.version, _ = version.ParseSemantic(p.tag)
		return []part{p}
	}
	return nil
}

func compare(typhas, agents []part, runs string) []finding.Finding {
	var found []finding.Finding
	for _, typha := range typhas {
		for _, agent := range agents {
			if typha.tag != agent.tag {
				found = append(found, differ(typha, agent, runs))
			}
		}
	}
	return found
}

func differ(typha, agent part, runs string) finding.Finding {
	f := finding.Finding{
		ID: id, Severity: finding.Warn, Subject: typha.subject,
		Message:  fmt.Sprintf("Typha %s %s and the agents %s: Typha passes on only what its own version knows, and the two were never tested together", runs, typha.tag, agent.tag),
		Evidence: map[string]any{"typha": typha.tag, "calicoNode": agent.tag, "agent": agent.subject.Namespace + "/" + agent.subject.Name},
		Fix:      "bring both to one version: calico-node first, node by node, and Typha when the last node is done",
	}
	if typha.version == nil || agent.version == nil {
		f.Message = fmt.Sprintf("Typha %s %q and the agents %q, and the tags do not say which versions these are", runs, typha.tag, agent.tag)
		return f
	}
	if b := between(agent.version, typha.version); b != nil {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("Typha %s %s, which %s: they lose readiness within seconds of Typha's start, and a roll-out that counts only "+
			"ready pods does not hold back, since they are unready already (22 of 30 nodes within 33 s, on the way to v3.32.0)", runs, typha.tag, fmt.Sprintf(b.why, agent.tag))
		f.Fix = "keep Typha at its version until every calico-node is new: apply the DaemonSet alone first, wait for its roll-out, then Typha"
	}
	return f
}
