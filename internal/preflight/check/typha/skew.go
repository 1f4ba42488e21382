// Package typha checks Typha, which relays the API server's objects to Calico's agents.
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

// Skew reports versions of Typha and its agents that are incompatible, now or during an upgrade.
func Skew() check.Check {
	return check.Check{
		ID:    id,
		Title: "Typha and calico-node have versions that refuse each other",
		Doc:   skewDoc,
		Needs: []string{"deployments", "daemonsets"},
		Run:   skew,
	}
}

// boundary is a minor version of Calico 3: no Typha from it on works with agents from before it. The reverse always
// works: an agent refuses an older Typha only if that does not announce SupportsNodeResourceUpdates
// (typha/pkg/syncclient), which all since v3.22 do, and agents from v3.32 on read the policy keys of older ones
// (parseLegacyPolicyName in libcalico-go/lib/backend/model).
type boundary struct {
	minor uint
	why   string // with one verb for the agents' version
}

// boundaries returns the known ones, the latest first. From v3.32 on, Typha closes the connection of agents that do not
// announce SupportsModernPolicyKeys; no earlier agent does (typha/pkg/syncserver of v3.32.0, v3.32.1 and release-v3.33;
// projectcalico/calico issue 13698, tigera/operator 4986 and 5110). Under Typha v3.23, agents of v3.22 lost readiness:
// it refuses none, but they cannot read what it sends (projectcalico/calico issues 6294 and 6526).
func boundaries() []boundary {
	return []boundary{{32, "refuses agents of %s"}, {23, "sends data that agents of %s cannot read"}}
}

// between returns the boundary that the agent's version is below and Typha's is not; nil if there is none.
func between(agent, typha *version.Version) *boundary {
	for _, b := range boundaries() {
		if agent.Major() == 3 && agent.Minor() < b.minor && typha.Major() == 3 && b.minor <= typha.Minor() {
			return &b
		}
	}
	return nil
}

// part is Typha or its agents, as they run or will run.
type part struct {
	subject finding.Subject
	tag     string
	version *version.Version // nil if the tag contains none
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
	found = append(found, compare(newTyphas, newAgents, "will run")...)
	// The manifest replaces Typha at once and the agents one after another: new Typhas serve old agents for a while.
	for _, typha := range newTyphas {
		for _, agent := range agents {
			if typha.tag != agent.tag {
				f := differ(typha, agent, "will run")
				f.Fix = inTurn(f, typha, agent)
				found = append(found, f)
			}
		}
	}
	return found
}

// inTurn returns the fix if a manifest's Typha and agents are replaced one after the other, as in a plan.
func inTurn(f finding.Finding, typha, agent part) string {
	switch {
	case f.Severity == finding.Block:
		return "keep Typha at its version until every calico-node is new. A plan of Theseus does that: pass --accept " +
			id + `="agents first". ` +
			"By hand: apply only the DaemonSet, wait for its rollout, then apply Typha"
	case typha.version != nil && agent.version != nil && typha.version.LessThan(agent.version):
		return "upgrade both to the same version: Typha first, since it is older, then calico-node, node by " +
			"node, as a plan of Theseus does"
	}
	return f.Fix
}

// byOperator compares the Typha of another release of Calico's operator, which it replaces at once, with the running
// agents.
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
	found := compare(typhas, agents, "will run")
	for i := range found {
		found[i].Fix = "read the release notes of both versions; if Typha refuses the agents, use another release " +
			"of the operator: it always replaces Typha before the agents"
	}
	return found
}

func fromManifest(pass *check.Pass) (typhas, agents []part) {
	for _, object := range pass.Manifest {
		var d appsv1.Deployment // a DaemonSet has its template in the same place
		if kind := object.GetKind(); kind != "Deployment" && kind != "DaemonSet" ||
			runtime.DefaultUnstructuredConverter.FromUnstructured(
				map[string]any{"spec": map[string]any{"template": template(object.Object)}}, &d) != nil {
			continue
		}
		typhas = append(typhas, parts(object.GetKind(), object.GetNamespace(), object.GetName(),
			"calico-typha", &d.Spec.Template.Spec)...)
		agents = append(agents, parts(object.GetKind(), object.GetNamespace(), object.GetName(),
			"calico-node", &d.Spec.Template.Spec)...)
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
		p := part{subject: finding.Subject{Kind: kind, Namespace: namespace, Name: name},
			tag: cluster.ImageOf(spec.Containers[i].Image).Tag}
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
		Message: fmt.Sprintf("Typha %s %s and the agents %s: Typha passes on only the fields that its version "+
			"knows, and the two were never tested together", runs, typha.tag, agent.tag),
		Evidence: map[string]any{"typha": typha.tag, "calicoNode": agent.tag,
			"agent": agent.subject.Namespace + "/" + agent.subject.Name},
		Fix: "upgrade both to the same version: calico-node first, node by node, and Typha after the last node",
	}
	if typha.version == nil || agent.version == nil {
		f.Message = fmt.Sprintf("Typha %s %q and the agents %q: the tags contain no version, so the two cannot be "+
			"compared", runs, typha.tag, agent.tag)
		return f
	}
	if b := between(agent.version, typha.version); b != nil {
		f.Severity = finding.Block
		f.Message = fmt.Sprintf("Typha %s %s, which %s: they become unready within seconds of Typha's start, and "+
			"pods that are already unready do not limit a rollout (22 of 30 nodes were lost within 33 "+
			"s in an upgrade to v3.32.0)",
			runs, typha.tag, fmt.Sprintf(b.why, agent.tag))
		f.Fix = "keep Typha at its version until every calico-node is new: apply only the DaemonSet, wait for " +
			"its rollout, then apply Typha"
	}
	return f
}
