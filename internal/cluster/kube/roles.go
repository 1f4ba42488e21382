package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/step"
)

// Duty is a set of tasks that a user performs with Theseus, and so the permissions that the user needs.
type Duty string

// The duties; each of the first three has the permissions of the previous ones.
const (
	// Look: status and report.
	Look Duty = "look"
	// Plan: snapshot, check and plan, which write nothing.
	Plan Duty = "plan"
	// Operate: apply, resume, pause, rollback, and snapshot --nodes. A user who may install a privileged DaemonSet and
	// grant it permissions can do anything in the end, so these are effectively the permissions of a cluster
	// administrator.
	Operate Duty = "operate"
	// Approve: approve, which lets the controller in the cluster run a plan, and watch. It has the permissions of Look,
	// and not those of Plan and Operate.
	Approve Duty = "approve"
	// Controller: what the controller in the cluster needs before it runs a plan. It has the permissions of Plan. Those
	// for a plan are granted to its ServiceAccount for each plan, with Operate.
	Controller Duty = "controller"
	// Changes: what the controller needs in addition to make plans for Changes. It contains no other duty, and no
	// permission to change a network: a plan runs only when a user has approved it.
	Changes Duty = "changes"
	// Page: what the live page in the cluster needs. It has the permissions of Look; people act with their own.
	Page Duty = "web"
)

// Duties lists the duties of which each has the permissions of the previous ones.
var Duties = []Duty{Look, Plan, Operate}

// Subject is the user, group or ServiceAccount that gets the permissions.
type Subject struct{ Kind, Namespace, Name string }

// Roles returns the RBAC objects that grant the permissions of a duty, and bind them to the subjects, if any. plan and
// steps are the name and the steps of the plan to execute; without them, Operate has the permissions for all changes
// that Theseus plans, except those of the strategy mirror. uses are those of actions of the plan whose operations do
// not say them. The names of a plan's roles end in its name, so that they replace no others.
func Roles(duty Duty, plan string, steps []step.Step, subjects []Subject,
	uses ...step.Use) ([]unstructured.Unstructured, error) {
	name := "theseus-" + string(duty)
	if plan != "" {
		name += "-" + plan
	}
	everywhere, within := map[string][]need{}, []string{}
	for _, n := range rightsOf(duty, steps, uses...) {
		if everywhere[n.namespace] == nil && n.namespace != "" {
			within = append(within, n.namespace)
		}
		everywhere[n.namespace] = append(everywhere[n.namespace], n)
	}
	var labels map[string]string
	if plan != "" {
		labels = map[string]string{manifest.LabelMigration: plan}
	}
	var all []unstructured.Unstructured
	if slices.Contains(within, v1alpha1.Namespace) {
		namespace := *manifest.Namespace()
		namespace.SetLabels(nil) // a run allows privileged pods itself, while it lasts
		all = append(all, namespace)
	}
	slices.Sort(within)
	for _, namespace := range append([]string{""}, within...) {
		role := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
			Rules: rules(everywhere[namespace])}
		kind := "ClusterRole"
		if namespace != "" {
			kind = "Role"
		}
		if duty == Look && namespace == "" {
			role.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
		}
		role.TypeMeta = metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
		object, err := toObject(&role)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
		if len(subjects) == 0 {
			continue
		}
		binding := rbacv1.ClusterRoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(),
			Kind: kind + "Binding"},
			ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: namespace, Labels: labels},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role.Name}}
		for _, s := range subjects {
			subject := rbacv1.Subject{Kind: s.Kind, Name: s.Name, Namespace: s.Namespace}
			if s.Kind != rbacv1.ServiceAccountKind {
				subject.APIGroup = rbacv1.GroupName
			}
			binding.Subjects = append(binding.Subjects, subject)
		}
		if object, err = toObject(&binding); err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	return all, nil
}

func toObject(from any) (unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
	if err != nil {
		return unstructured.Unstructured{}, err
	}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	return unstructured.Unstructured{Object: fields}, nil
}

// rightsOf returns the permissions of a duty and of the previous ones.
func rightsOf(duty Duty, steps []step.Step, uses ...step.Use) []need {
	const own = v1alpha1.Group
	if duty == Changes {
		return []need{
			{own, "changes", "", "get list"}, {own, "changes/status", "", "update"},
			{"", "events", metav1.NamespaceDefault, "create patch"},
			{own, "migrations", v1alpha1.Namespace, "create delete patch"},
			{own, "planpages", v1alpha1.Namespace, "create delete patch"},
		}
	}
	all := []need{
		{own, "changes", "", "get list"},
		{own, "migrations", "", "get list"}, {own, "planpages", "", "get list"}, {own, "journalpages", "", "get list"},
		{own, "probeplans", "", "list watch"}, {own, "probereports", "", "list watch"},
		{own, "approvals", "", "list"}, {"coordination.k8s.io", "leases", "", "get"},
		{"", "namespaces", "", "get"}, {"", "pods", "", "list"},
		{"apps", "replicasets", "", "get"},
		{"", "configmaps", v1alpha1.Namespace, "get"}, // the evidence that runs keep
		// why the controller does not run
		{"apps", "deployments", v1alpha1.Namespace, "get"}, {"", "events", v1alpha1.Namespace, "list"},
	}
	if duty == Look {
		return all
	}
	if duty == Approve {
		return append(all, approves()...)
	}
	if duty == Page {
		return append(append(all, findsServers), readsBGP()...)
	}
	// agents are told the API servers' own addresses, and these are targets of measured paths
	all = append(append(all, reads()...), findsServers)
	if duty == Plan {
		return all
	}
	if duty == Controller {
		return append(all, controls()...)
	}
	all = append(all, needs()...)
	// A role may only contain permissions that its writer has, unless the writer has these two verbs.
	all = append(all, need{rbacv1.GroupName, "clusterroles", "", "escalate bind"}, keepsEvidence, watchesTasks)
	if steps == nil {
		return append(append(append(all, seesEvents), grantsIn("")...), ofAnyChange()...)
	}
	all = append(all, grantsIn(v1alpha1.Namespace)...) // those of the agents
	// A Role cannot exist before its namespace: permissions in a namespace that the plan creates or deletes are
	// cluster-wide.
	fleeting := map[string]bool{}
	for i := range steps {
		for _, action := range steps[i].Actions {
			ref := action.Ref()
			if ref.Kind != "Namespace" {
				continue
			}
			switch action.Do.(type) {
			case step.Delete:
				fleeting[ref.Name] = true
			case step.Apply:
				fleeting[ref.Name] = fleeting[ref.Name] || ref.Name != v1alpha1.Namespace
			}
		}
	}
	resources := resources{meta.NewDefaultRESTMapper(nil), defined(steps)}
	for _, n := range resources.needs(steps, uses) {
		if fleeting[n.namespace] {
			n.namespace = ""
		}
		all = append(all, n)
		if n.group == rbacv1.GroupName && (n.resource == "roles" || n.resource == "rolebindings") {
			all = append(all, grantsIn(n.namespace)...)
		}
	}
	return all
}

// grantsIn lets a plan write and bind roles in a namespace; "" stands for all.
func grantsIn(namespace string) []need {
	return []need{{rbacv1.GroupName, "roles", namespace, "get create patch delete escalate bind"},
		{rbacv1.GroupName, "rolebindings", namespace, "get create patch delete"}}
}

// findsServers lets a process find the addresses of the API servers.
var findsServers = need{"discovery.k8s.io", "endpointslices", metav1.NamespaceDefault, "list"}

// keepsEvidence lets a run keep what the probes measured in the cluster. A run goes on without it.
var keepsEvidence = need{"", "configmaps", v1alpha1.Namespace, "get create update"}

// watchesTasks lets a run see at once what agents answer. A run goes on without it, and reads each task repeatedly.
var watchesTasks = need{v1alpha1.Group, "nodetasks", v1alpha1.Namespace, "watch"}

// approves returns what a user needs to approve a plan. The API server admits an approval only with the verb approve
// (manifest.ApprovalPolicy).
func approves() []need {
	return []need{{v1alpha1.Group, "migrations", v1alpha1.Namespace, v1alpha1.VerbApprove},
		{v1alpha1.Group, "approvals", v1alpha1.Namespace, "create"}}
}

// controls returns what the controller needs in addition to reading: to take the lock, to write conditions and events,
// and to check the policy that proves who approved. The event of an object is in the namespace of the object: pods that
// a run evicts may be in any.
func controls() []need {
	return []need{
		{"coordination.k8s.io", "leases", v1alpha1.Namespace, "create update"},
		{v1alpha1.Group, "migrations", v1alpha1.Namespace, "patch"},
		{"", "events", "", "create patch"}, keepsEvidence,
		{"admissionregistration.k8s.io", "validatingadmissionpolicies", "", "get"},
		{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", "get"},
	}
}

// readsBGP returns what BGPObjects reads.
func readsBGP() []need {
	all := []need{{"", "nodes", "", "list"}}
	for _, gv := range bgp.Versions {
		for _, kind := range bgp.Kinds {
			plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind))
			all = append(all, need{gv.Group, plural.Resource, "", "list"})
		}
	}
	return all
}

// reads returns the resources that a snapshot lists.
func reads() []need {
	all := []need{
		{"", "nodes", "", "list"}, {"", "namespaces", "", "list"}, {"", "services", "", "list"},
		{"", "configmaps", "", "list"}, {"", "persistentvolumes", "", "list"}, {"apps", "daemonsets", "", "list"},
		{"apps", "deployments", "", "list"}, {"apps", "replicasets", "", "list"}, {"apps", "statefulsets", "", "list"},
		{"batch", "jobs", "", "list"}, {"policy", "poddisruptionbudgets", "", "list"},
		{"networking.k8s.io", "networkpolicies", "", "list"},
		{"networking.k8s.io", "servicecidrs", "", "list"}, {"", "resourcequotas", "", "list"},
		{"", "limitranges", "", "list"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "list"},
		{"admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "list"},
		{"admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "list"},
		{"apiregistration.k8s.io", "apiservices", "", "list"},
	}
	for _, group := range networkGroups() {
		all = append(all, need{group, "*", "", "list"})
	}
	for _, one := range append(otherPolicies(), deployers()...) {
		all = append(all, need{one.group, one.resource, "", "list"})
	}
	all = append(all, need{"core.openfeature.dev", "featureflags", "", "get"}) // flag sources (provider.FeatureFlags)
	return append(all, readsWritten()...)
}

// readsWritten returns what AddWritten reads of any plan: who maintains the objects that it writes.
func readsWritten() []need {
	all := []need{
		{"", "namespaces", "", "get"}, {"", "services", "", "get"}, {"", "configmaps", "", "get"},
		{"", "serviceaccounts", "", "get"}, {"apps", "daemonsets", "", "get"}, {"apps", "deployments", "", "get"},
		{"policy", "poddisruptionbudgets", "", "get"}, {"networking.k8s.io", "networkpolicies", "", "get"},
		{"scheduling.k8s.io", "priorityclasses", "", "get"},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", "get"},
		{"apiregistration.k8s.io", "apiservices", "", "get"},
		{"admissionregistration.k8s.io", "validatingadmissionpolicies", "", "get"},
		{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", "get"},
	}
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		all = append(all, need{rbacv1.GroupName, resource, "", "get"})
	}
	for _, group := range changedGroups() {
		all = append(all, need{group, "*", "", "get"})
	}
	return all
}

// ofAnyChange returns what any of Theseus' changes may do, in addition to what all changes do.
func ofAnyChange() []need {
	const write = "get create patch delete"
	all := []need{
		{"", "namespaces", "", write}, {"", "nodes", "", "update patch delete"}, {"", "nodes/status", "", "patch"},
		{"", "pods", "", write}, {"", "pods/eviction", "", "create"}, {"", "pods/log", "", "get"},
		{"", "configmaps", "", write}, {"", "services", "", write}, {"", "serviceaccounts", "", write},
		{"apps", "daemonsets", "", write}, {"apps", "deployments", "", write}, {"apps", "statefulsets", "", "get"},
		{"apps", "replicasets", "", "get"}, {"apps", "controllerrevisions", "", "list"},
		{"*", "*/scale", "", "get"},
		{"policy", "poddisruptionbudgets", "", write}, {"networking.k8s.io", "networkpolicies", "", write},
		{"apiextensions.k8s.io", "customresourcedefinitions", "", write},
		{rbacv1.GroupName, "clusterroles", "", write}, {rbacv1.GroupName, "clusterrolebindings", "", write},
		{"scheduling.k8s.io", "priorityclasses", "", write},
		{"admissionregistration.k8s.io", "validatingadmissionpolicies", "", write},
		{"admissionregistration.k8s.io", "validatingadmissionpolicybindings", "", write},
	}
	for _, group := range changedGroups() {
		all = append(all, need{group, "*", "", write + " list"})
	}
	return all
}

// rules converts needs to rules: one for each group and set of verbs.
func rules(needs []need) []rbacv1.PolicyRule {
	verbs := map[[2]string]map[string]bool{} // by group and resource
	for _, n := range needs {
		key := [2]string{n.group, n.resource}
		if verbs[key] == nil {
			verbs[key] = map[string]bool{}
		}
		for _, verb := range strings.Fields(n.verbs) {
			verbs[key][verb] = true
		}
	}
	resources := map[[2]string][]string{} // by group and verbs
	for key, of := range verbs {
		together := [2]string{key[0], strings.Join(sortedKeys(of), " ")}
		resources[together] = append(resources[together], key[1])
	}
	var all []rbacv1.PolicyRule
	for key, names := range resources {
		slices.Sort(names)
		all = append(all, rbacv1.PolicyRule{APIGroups: []string{key[0]}, Resources: names,
			Verbs: strings.Fields(key[1])})
	}
	slices.SortFunc(all, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(strings.Compare(a.APIGroups[0], b.APIGroups[0]), slices.Compare(a.Resources, b.Resources))
	})
	return all
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// accountPrefix begins the names by which the API server knows ServiceAccounts; NAMESPACE:NAME follows.
const accountPrefix = "system:serviceaccount:"

// User is the name by which the API server knows a subject that is no group.
func User(s Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return accountPrefix + s.Namespace + ":" + s.Name
	}
	return s.Name
}

// SubjectText is a user as ReadSubject parses it.
func SubjectText(user string) string {
	if name, ok := strings.CutPrefix(user, accountPrefix); ok {
		return "serviceaccount:" + strings.Replace(name, ":", "/", 1)
	}
	return "user:" + user
}

// ReadSubject parses a subject: user:NAME, group:NAME, or serviceaccount:NAMESPACE/NAME.
func ReadSubject(text string) (Subject, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch {
	case name == "":
	case kind == "user":
		return Subject{Kind: rbacv1.UserKind, Name: name}, nil
	case kind == "group":
		return Subject{Kind: rbacv1.GroupKind, Name: name}, nil
	case kind == "serviceaccount":
		if namespace, account, ok := strings.Cut(name, "/"); ok && namespace != "" && account != "" {
			return Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}, nil
		}
	}
	return Subject{}, fmt.Errorf("%q is not a subject: use user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME",
		text)
}
