package calico

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Names of Calico's operator, and the namespace of the objects that it creates.
const (
	operatorGroup     = "operator.tigera.io"
	operatorName      = "tigera-operator"
	operatorNamespace = "calico-system"
)

// rendered are the patch releases of Calico that releases of the operator install, by the operator's minor and patch
// release: v1.34 installs v3.28, v1.36 v3.29 and so on (config/calico_versions.yml of tigera/operator, at its tags).
var rendered = map[uint][]uint{
	34: {0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5},
	36: {0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7},
	38: {0, 1, 1, 2, 2, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7},
	40: {0, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 6, 6, 7},
}

// Rendered is the version of Calico that the operator in a manifest installs; empty if the manifest has no operator, or
// one of an unknown release.
func Rendered(documents []unstructured.Unstructured) string {
	deployment := operatorIn(documents)
	if deployment == nil {
		return ""
	}
	v, err := version.ParseSemantic(cni.WorkloadVersion(deployment))
	if err != nil || v.Major() != 1 || v.PreRelease() != "" || int(v.Patch()) >= len(rendered[v.Minor()]) {
		return ""
	}
	return "v3." + strconv.Itoa(int(v.Minor()-34)/2+28) + "." + strconv.Itoa(int(rendered[v.Minor()][v.Patch()]))
}

// operatorIn returns the operator's Deployment in a manifest; nil if there is none.
func operatorIn(documents []unstructured.Unstructured) *unstructured.Unstructured {
	i := slices.IndexFunc(documents, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == operatorName
	})
	if i < 0 {
		return nil
	}
	return &documents[i]
}

// reported is the condition on the operator's TigeraStatus calico, which covers all of Calico. It is not Available
// while pods of the DaemonSet have an older template (pkg/controller/status of tigera/operator), and Degraded if a
// workload fails or the operator itself cannot continue.
func reported(conditions map[string]string) *step.Condition {
	return &step.Condition{Is: step.Reports{Status: conditions,
		Ref: step.Ref{APIVersion: operatorGroup + "/v1", Kind: "TigeraStatus", Name: "calico"}}}
}

// status returns that object; nil if there is none.
func status(snapshot *cluster.Snapshot) *unstructured.Unstructured {
	all := snapshot.OtherOf(operatorGroup, "TigeraStatus")
	at := slices.IndexFunc(all, func(s unstructured.Unstructured) bool { return s.GetName() == "calico" })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// whole is the operator reporting that Calico is complete, and sound that no part of it fails.
func whole() *step.Condition {
	return reported(map[string]string{"Available": "True", "Degraded": "False"})
}

func sound() *step.Condition { return reported(map[string]string{"Degraded": "False"}) }

// operated upgrades a Calico that is installed by its operator: the plan changes the operator's own Deployment, and the
// operator changes the rest. says is the version of Calico that the operator installs, according to the user; it may be
// empty if that is known.
func operated(snapshot *cluster.Snapshot, found *cni.Installation, installation *unstructured.Unstructured,
	documents []unstructured.Unstructured,
	says string) (*cni.Upgrade, error) {
	if err := stageable(snapshot, found, installation); err != nil {
		return nil, err
	}
	wanted, live, err := operators(snapshot, documents)
	if err != nil {
		return nil, err
	}
	to := says
	if known := Rendered(documents); known != "" {
		to = known // if the user wants another version, the plan reports that
	}
	if to == "" {
		return nil, refuse(fmt.Sprintf("Theseus does not know which version of Calico the operator %s installs",
			cni.WorkloadVersion(wanted)),
			"set --cni-version to the version in config/calico_versions.yml of that release of tigera/operator")
	}
	if err := versions(found.Version, to, "--cni-version"); err != nil {
		return nil, cni.OfManifest(err)
	}
	next := *found
	next.Version = to
	o := &cni.Owner{Ref: step.RefOf(wanted), From: cni.WorkloadVersion(live), To: cni.WorkloadVersion(wanted),
		Form: cni.TemplateForm(live, wanted, cni.WorkloadVersion(live), cni.WorkloadVersion(wanted)),
		Why: "It updates everything cluster-wide to " + to + " at once, and no setting prevents that: permissions " +
			"and settings of the agents, " + typhaName + " and the controllers. " +
			"Their pods are replaced now. It also updates the agents' DaemonSet to " + to +
			", but the agents' pods are held."}
	if o.From == o.To {
		return nil, cni.OfManifest(refuse("the operator "+o.To+" already runs", "give the manifest of another version"))
	}
	for i := range snapshot.Deployments {
		if d := &snapshot.Deployments[i]; d.Namespace == operatorNamespace &&
			(d.Name == typhaName || d.Name == controllersName) {
			o.Rolls = append(o.Rolls,
				step.Ref{APIVersion: "apps/v1", Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
		}
	}
	if status(snapshot) != nil {
		o.Sound, o.Whole = sound(), whole()
	}
	slices.SortStableFunc(o.Rolls, func(a, b step.Ref) int { return place(a) - place(b) })
	return operatorParts(snapshot, documents, &cni.Upgrade{Installation: next, Owner: o}, found.Version)
}

// stageable refuses installations that the operator cannot upgrade node by node, or that Theseus does not support.
func stageable(snapshot *cluster.Snapshot, found *cni.Installation, installation *unstructured.Unstructured) error {
	for _, setting := range []struct {
		fields []string
		known  []string
	}{
		{[]string{"spec", "variant"}, []string{"", "Calico"}},
		{[]string{"spec", "cni", "type"}, []string{"", "Calico"}},
		{[]string{"spec", "calicoNetwork", "linuxDataplane"}, []string{"", "Iptables", "Nftables"}},
	} {
		value, _, _ := unstructured.NestedString(installation.Object, setting.fields...)
		if !slices.Contains(setting.known, value) {
			return refuse(fmt.Sprintf("the Installation %s has %s: %s, with which Theseus does not support an "+
				"upgrade node "+
				"by node", installation.GetName(), strings.Join(setting.fields, "."), value),
				"upgrade the operator itself, and measure that: theseus guard -- COMMAND")
		}
	}
	set := snapshot.DaemonSet(found.Agent.Namespace, found.Agent.Name)
	if set == nil || set.Namespace != operatorNamespace {
		return refuse(fmt.Sprintf("an Installation exists, but the agents are %s: the operator has not taken over all "+
			"of them", found.Agent),
			"wait until the operator is done: kubectl get tigerastatus calico")
	}
	if roll := set.Spec.UpdateStrategy.RollingUpdate; roll != nil && roll.MaxSurge != nil &&
		roll.MaxSurge.String() != "0" && roll.MaxSurge.String() != "0%" {
		return refuse(fmt.Sprintf("%s creates new pods before it deletes old ones (maxSurge %s), and Theseus cannot "+
			"hold these back",
			found.Agent, roll.MaxSurge),
			"remove spec.nodeUpdateStrategy.rollingUpdate.maxSurge from the Installation first")
	}
	if now := status(snapshot); now != nil {
		conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
		if !slices.ContainsFunc(conditions,
			func(c any) bool { return partOf(map[string]any{"type": "Available", "status": "True"}, c) }) {
			return refuse("the operator does not report Calico as Available",
				"wait, or fix the problem that it reports: kubectl get tigerastatus calico -o yaml")
		}
	}
	if !cluster.AdmissionPolicies(snapshot.Kubernetes) {
		return refuse(fmt.Sprintf("the operator's DaemonSet replaces pods by itself; only Kubernetes v1.30 or "+
			"later can "+
			"deny that (ValidatingAdmissionPolicy), and this API server is %q",
			snapshot.Kubernetes),
			"upgrade Kubernetes first, or upgrade the operator itself and watch it: theseus explain "+
				"calico/operator, theseus probe run")
	}
	return nil
}

// operators returns the operator's Deployment in the manifest, and the running one.
func operators(snapshot *cluster.Snapshot, documents []unstructured.Unstructured) (wanted,
	live *unstructured.Unstructured, err error) {
	if wanted = operatorIn(documents); wanted == nil {
		return nil, nil, refuse("Calico belongs to its operator, and the manifest has no Deployment "+operatorName,
			"give the operator's manifest of the other version, such as "+
				"manifests/tigera-operator.yaml of Calico's release")
	}
	at := slices.IndexFunc(snapshot.Deployments, func(d appsv1.Deployment) bool {
		return d.Name == wanted.GetName() && d.Namespace == wanted.GetNamespace() &&
			cluster.IsSystemNamespace(d.Namespace)
	})
	if at < 0 {
		return nil, nil, refuse(fmt.Sprintf("the operator in the manifest is Deployment %s/%s, which does not run here",
			wanted.GetNamespace(), wanted.GetName()),
			"give the manifest that installed this cluster's operator, in the other version")
	}
	if replicas := snapshot.Deployments[at].Spec.Replicas; replicas != nil && *replicas == 0 {
		return nil, nil, refuse("the operator is scaled to 0, so it would not act",
			"kubectl -n "+operatorName+" scale deployment "+operatorName+" --replicas=1")
	}
	live, err = cni.Plain(&snapshot.Deployments[at])
	return wanted, live, err
}

// operatorParts sorts the rest of the operator's manifest; from is the version of Calico that runs.
func operatorParts(snapshot *cluster.Snapshot, documents []unstructured.Unstructured, u *cni.Upgrade,
	from string) (*cni.Upgrade, error) {
	var roles []unstructured.Unstructured
	for i := range documents {
		object := documents[i].DeepCopy()
		switch object.GetKind() {
		case "CustomResourceDefinition":
			u.Definitions = append(u.Definitions, *object)
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
			roles = append(roles, *object)
		case "Deployment", "DaemonSet", "StatefulSet":
			if step.RefOf(object) != u.Owner.Ref {
				return nil, refuse(fmt.Sprintf("the manifest contains %s %s in addition to the operator",
					object.GetKind(), object.GetName()), "give the operator's own manifest, with as few changes "+
					"as possible")
			}
		default:
			if err := inForce(snapshot, object); err != nil {
				return nil, err
			}
			if !strings.HasSuffix(object.GroupVersionKind().Group, "projectcalico.org") &&
				object.GroupVersionKind().Group != operatorGroup {
				u.Objects = append(u.Objects, *object)
			}
		}
	}
	if cni.Older(u.Installation.Version, from) {
		u.Definitions = lacking(snapshot, u.Definitions)
	}
	if err := cni.Lossless(u.Definitions, snapshot.Other); err != nil {
		return nil, err
	}
	cni.SortForApply(u.Objects)
	cni.SortForApply(roles)
	for i := range roles {
		u.Rights = append(u.Rights, cni.Beside(&roles[i], roles))
	}
	u.Roles = roles
	cni.Label(u.Rights)
	return u, nil
}

// inForce refuses an object of the operator's kinds with settings that differ from the cluster's: the operator would
// apply them on all nodes at once. The cluster's object may have more fields, because the operator writes its defaults
// into it.
func inForce(snapshot *cluster.Snapshot, object *unstructured.Unstructured) error {
	if object.GroupVersionKind().Group != operatorGroup {
		return settled(snapshot, object)
	}
	for _, now := range snapshot.OtherOf(operatorGroup, object.GetKind()) {
		if now.GetName() == object.GetName() && partOf(object.Object["spec"], now.Object["spec"]) {
			return nil
		}
	}
	return refuse(fmt.Sprintf("the manifest contains %s %s, which differs from the cluster, and the operator would "+
		"apply it on all nodes at once", object.GetKind(), object.GetName()),
		"remove it from the manifest, and change it afterwards")
}

// partOf reports whether one tree is part of another.
func partOf(one, whole any) bool {
	switch one := one.(type) {
	case nil:
		return true
	case map[string]any:
		in, ok := whole.(map[string]any)
		for key, value := range one {
			ok = ok && partOf(value, in[key])
		}
		return ok
	case []any:
		in, ok := whole.([]any)
		ok = ok && len(in) == len(one)
		for i := range one {
			ok = ok && partOf(one[i], in[i])
		}
		return ok
	}
	return fmt.Sprint(one) == fmt.Sprint(whole)
}
