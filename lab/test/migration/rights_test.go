package migration

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/audit"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// unusedInWalk are rights that the roles of a plan grant, and that TestWalk does not use. A change that this test makes
// uses every other right.
var unusedInWalk = []audit.Exception{
	{Rights: regexp.MustCompile(`^(escalate|bind) (cluster)?roles\.rbac`),
		Why: "the API server asks for these itself, when a role is written: no request has these verbs"},
	{Rights: regexp.MustCompile(`^create namespaces$`),
		Why: "a run makes theseus-system where it is not there; the roles in it have made it"},
	{Rights: regexp.MustCompile(`^delete (deployments\.apps|poddisruptionbudgets\.policy) in kube-system$`),
		Why: "only a rollback deletes what is Calico's"},
	{Rights: regexp.MustCompile(`^delete (ippools|ipreservations)\.crd\.projectcalico\.org$`),
		Why: "only a rollback deletes what is Calico's"},
	{Rights: regexp.MustCompile(`^delete migrations\.theseus\.dev in theseus-system$`),
		Why: "a run deletes a Migration that a CRD of an older version cut short (journal.ErrOldCRDs)"},
	{Rights: regexp.MustCompile(`^delete planpages\.theseus\.dev in theseus-system$`),
		Why: "a run deletes pages of plans whose Migration was never made (journal.Settle)"},
	{Rights: regexp.MustCompile(`^list (applications\.argoproj|(helmreleases\.helm|kustomizations\.kustomize)\.toolkit\.fluxcd)\.io$`),
		Why: "a snapshot reads these where there are such kinds"},
	{Rights: regexp.MustCompile(`^list \*\.(cilium|k8s\.cni\.cncf|metallb|operator\.tigera|projectcalico|sriovnetwork\.openshift)\.(io|org)$`),
		Why: "a snapshot reads every kind of these groups where there is any"},
	{Rights: regexp.MustCompile(`^list \S+\.(policy\.networking\.k8s\.io|crd\.antrea\.io|k8s\.ovn\.org|` +
		`network\.openshift\.io|kubeovn\.io|crd\.nsx\.vmware\.com|networking\.gke\.io|(networking|vpcresources)\.k8s\.aws)$`),
		Why: "a snapshot reads these policies where there are such kinds"},
	{Rights: regexp.MustCompile(`^list ipamhandles\.crd\.projectcalico\.org$`),
		Why: "a snapshot reads every kind of this group but this one: there is one for each pod"},
	{Rights: regexp.MustCompile(`^get featureflags\.core\.openfeature\.dev$`),
		Why: "a plan may be made of a flag set in the cluster"},
	{Rights: regexp.MustCompile(`^get (apiservices\.apiregistration|priorityclasses\.scheduling)\.k8s\.io$`), Why: plansToo},
	{Rights: regexp.MustCompile(`^get \S+\.crd\.projectcalico\.org$`), Why: plansToo},
	{Rights: regexp.MustCompile(`^get \*\.(cilium\.io|operator\.tigera\.io|projectcalico\.org)$`), Why: plansToo},
	{Rights: regexp.MustCompile(`^(get|list) changes\.theseus\.dev$|^list approvals\.theseus\.dev$`),
		Why: "who operates may also look: these are of plans that the controller makes and runs"},
	{Rights: regexp.MustCompile(`^get deployments\.apps in theseus-system$`),
		Why: "who operates may also look: status says why the controller in the cluster does not run"},
	{Rights: regexp.MustCompile(`^delete nodetasks\.theseus\.dev in theseus-system$`), Sometimes: true,
		Why: "a run deletes the task of an earlier try, if an agent has ended it"},
	{Rights: regexp.MustCompile(`^list events in theseus-system$`), Sometimes: true,
		Why: "a wait says why the API server creates no pods of a workload, if it lasts"},
	{Rights: regexp.MustCompile(`^get \*/scale\.\*$`), Sometimes: true,
		Why: "only a plan that evicts pods has it, and uses it for workloads of other projects"},
	{Rights: regexp.MustCompile(`^patch pods in kube-system$`), Sometimes: true,
		Why: "a restart nudges the kubelet only if the new pod is not ready after five looks (kube.nudge)"},
	{Rights: regexp.MustCompile(`^patch nodes/status$`), Sometimes: true,
		Why: "an agent of a network may mark the node's network as unavailable when it ends"},
}

const plansToo = "who operates may also plan: these are read of plans that write such objects (kube.AddWritten)"

// refusedInWalk are requests that the roles of a plan do not allow.
var refusedInWalk = []audit.Exception{
	{Rights: regexp.MustCompile(`^get pods/log in `), Sometimes: true,
		Why: "the last words of a container that has ended are told where the user may read them"},
}

// rolesOf reads the roles of plans.
func rolesOf(t *testing.T, rig *scenario.Rig) audit.Roles {
	t.Helper()
	text, err := rig.Kubectl(t.Context(), nil, "get", "clusterroles,roles", "--all-namespaces", "-l",
		"theseus.dev/migration", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var roles audit.Roles
	if err := json.Unmarshal([]byte(text), &roles); err != nil {
		t.Fatal(err)
	}
	return roles
}

// mustUseItsRights compares what the operator asked of the API server with its roles.
func mustUseItsRights(t *testing.T, rig *scenario.Rig, roles audit.Roles) {
	t.Helper()
	text, err := rig.InLab(t.Context(), "logs", "controlplane", controlplane.AuditName)
	if err != nil {
		t.Fatal(err)
	}
	events, err := audit.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	events = slices.DeleteFunc(events, func(event audit.Event) bool {
		return event.User.Username != "system:serviceaccount:default:operator"
	})
	rights, err := roles.Rights(func(group, verb string) ([]string, error) {
		text, err := rig.Kubectl(t.Context(), nil, "api-resources", "--api-group", group, "--verbs", verb, "-o", "name")
		resources := strings.Fields(text)
		for i := range resources {
			resources[i] = strings.TrimSuffix(resources[i], "."+group)
		}
		return resources, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests of the operator, who has %d rights", len(events), len(rights))
	for _, wrong := range slices.Concat(audit.Refused(events, rights, refusedInWalk),
		audit.Unused(events, rights, unusedInWalk)) {
		t.Error(wrong)
	}
}
