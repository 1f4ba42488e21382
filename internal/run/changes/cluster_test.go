package changes

import (
	"context"
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	resourceapi "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/window"
)

// rig is a real API server with a planner that has no more than the permissions of the controller. The cluster that it
// plans for is a fixture.
type rig struct {
	*testing.T
	admin    *kube.Client
	planner  *Planner
	events   *record.FakeRecorder
	told     []string // by events
	snapshot *cluster.Snapshot
}

// TestAPIServer holds, against a real API server, what becomes of Changes from their creation to the end of their
// migrations.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "Changes in a real API server")
	const account = "system:serviceaccount:theseus-system:theseus-controller"
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{account}})
	as := kubetest.Users(t, config)
	r := &rig{T: t, admin: as("token"), snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))}
	if err := run.Prepare(t.Context(), r.admin); err != nil {
		t.Fatal(err)
	}
	r.apply(manifest.ChangeCRD())
	for _, duty := range []kube.Duty{kube.Controller, kube.Changes} {
		roles, err := kube.Roles(duty, "", nil, []kube.Subject{{Kind: rbacv1.ServiceAccountKind,
			Namespace: v1alpha1.Namespace, Name: manifest.ControllerName}})
		if err != nil {
			t.Fatal(err)
		}
		r.apply(roles...)
	}
	r.events = record.NewFakeRecorder(1000)
	r.planner = &Planner{Events: r.events, Client: as(account), Holder: "theseus-controller@test (plans)",
		AgentImage: "registry.example.com/agent@sha256:" + strings.Repeat("0", 64), Version: "v0.0.0-test",
		Out: os.Stderr, Snapshot: func(context.Context) (*cluster.Snapshot, error) {
			return r.snapshot, nil
		}}
	r.turn() // there is no Change, and no error

	r.refusesInvalid()
	r.manifests()
	r.blocks()
	first := r.plans()
	r.waits(first)
	r.keepsWindows()
	r.replicas()
	first = r.plansAgain(r.migrations()[0])
	r.runs(first)
	r.withdraws()
	r.limits()
	r.refused()
}

// refusesInvalid: the API server refuses what can never be planned.
func (r *rig) refusesInvalid() {
	r.Helper()
	for spec, says := range map[string]string{
		"{}": "name the change",
		"{to: calico, slo: ['command: ./check.sh']}": "slo has a signal that is a command, " +
			"which the controller does not run",
		"{to: calico, addHook: 'sh -c id', removeHook: x}": "addHook is for commands, which " +
			"the controller does not run",
		"{to: calico, strategy: mirror}":      "does not run plans of the strategies surge and mirror",
		"{to: calico, strategy: surge}":       "does not run plans of the strategies surge and mirror",
		"{to: calico, manifest: calico.yaml}": "use manifestFrom.configMap or manifestFrom.inline",
		"{to: calico, manifestFrom: {}}":      "manifestFrom has either configMap or inline",
		"{to: calico, manifestFrom: {configMap: a, inline: b}}": "manifestFrom " +
			"has either configMap or inline",
		"{to: calico, manifestFrom: {inline: b, key: c}}": "manifestFrom.key is a key of manifestFrom.configMap",
		"{to: calico, maxLost: -1}":                       "maxLost is at least 0",
		"{to: calico, kubernetesTo: v1.36.0}":             "kubernetesTo is for `theseus check` only",
		"{to: calico, waves: many}":                       "spec.waves",

		"{to: calico, windows: [{from: '22:00', to: '5:00', timeZone: UTC}]}":  "spec.windows[0].to",
		"{to: calico, windows: [{from: '22:00', to: '05:00'}]}":                "spec.windows[0].timeZone: Required",
		"{to: calico, windows: [{from: '22:00', to: '22:00', timeZone: UTC}]}": "opens and closes at the same time",

		"{to: calico, strategy: adopt, replaceNodes: 'a=b', removeHook: 'x'}": "replaceNodes " +
			"is for `theseus check` only",
	} {
		err := r.create("invalid", spec)
		if err == nil || !strings.Contains(err.Error(), says) {
			r.Errorf("%s: %v, want %q", spec, err, says)
		}
	}
}

const spec = "{to: calico, podCIDR: 10.96.0.0/16, strategy: recreate, manifestFrom: {configMap: calico}}"

// manifests: the condition says which ConfigMap or key is missing, and what is wrong in it.
func (r *rig) manifests() {
	r.Helper()
	if err := r.create("first", spec); err != nil {
		r.Fatal(err)
	}
	if status := r.read("first").Status; status.ObservedGeneration != -1 || len(status.Conditions) > 0 {
		r.Errorf("kstatus takes a Change that no controller has seen for one that is done: %+v", status)
	}
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonManifestMissing, "there is no ConfigMap theseus-system/calico")
	for _, test := range []struct {
		data         map[string]string
		reason, says string
	}{
		{map[string]string{"a": "", "b": ""}, v1alpha1.ReasonManifestMissing, "2 keys"},
		{map[string]string{"a": "kind: ["}, v1alpha1.ReasonManifestInvalid, "the manifest"},
		{map[string]string{"a": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n  namespace: shop\n"},
			v1alpha1.ReasonManifestInvalid, "the manifest has the Secret shop/s"},
	} {
		r.configMap(test.data)
		r.turn()
		r.wants("first", "False", test.reason, test.says)
	}
	r.configMap(map[string]string{"calico.yaml": string(cnitest.Text(r.T, "calico-manifest.yaml"))})
}

// blocks: findings block, with a fix for each, until the Change is edited.
func (r *rig) blocks() {
	r.Helper()
	good, bad := r.snapshot, *r.snapshot
	bad.Nodes = slices.Clone(good.Nodes)
	bad.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	r.snapshot = &bad
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonRefused, "is not Ready")
	r.snapshot = good
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonRefused, "is not Ready") // it was tried a moment ago
	r.edit("first", map[string]any{"peered": []string{"office=10.96.0.0/12"}})
	bad = *good
	for _, resource := range []string{"nodes", "services"} {
		bad.Sources = append(bad.Sources, cluster.Source{Resource: resource, From: "a fixture"})
	}
	r.snapshot = &bad
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonBlocked, "findings block this change")
	found := r.read("first").Status.Findings
	if len(found) == 0 || found[0].Severity != "block" || found[0].Message == "" || found[0].Subject == "" ||
		found[0].ID == "api/rights" {
		r.Fatalf("%+v", found)
	}
	r.snapshot = good
	r.edit("first", map[string]any{"peered": nil})
}

// plans: the plan is a Migration that waits for its approval.
func (r *rig) plans() v1alpha1.Migration {
	r.Helper()
	r.turn()
	r.wants("first", "True", v1alpha1.ReasonPlanned, "has the plan")
	status, m := r.read("first").Status, r.migrations()[0]
	for _, all := range [][]metav1.Condition{status.Conditions, m.Status.Conditions} {
		if !meta.IsStatusConditionTrue(all, v1alpha1.ConditionReconciling) {
			r.Errorf("kstatus takes a plan that waits for one that is done: %+v", all)
		}
	}
	origin, made := journal.OriginOf(&m)
	if !made || origin.Name != "first" || !m.Spec.InCluster || status.Migration != m.Name ||
		status.PlanHash != m.Spec.PlanHash || status.ManifestDigest == "" {
		r.Errorf("%+v, %+v, %+v", status, origin, m.Spec)
	}
	text := strings.Join(status.Summary, "\n")
	for _, part := range []string{"Plan " + m.Name, "3 nodes", "registry.example.com/agent@sha256:",
		"as root on every node", "The point of no return is step"} {
		if !strings.Contains(text, part) {
			r.Errorf("%q is not in the summary:\n%s", part, text)
		}
	}
	p, _, err := journal.Load(r.Context(), r.admin.Dynamic, m.Name)
	if err != nil || p.Hash != status.PlanHash || p.Change.ManifestFrom == nil || len(p.Findings) == 0 {
		r.Errorf("%v", err)
	}
	version := r.read("first").ResourceVersion
	r.turn()
	r.planner.looked = nil // as after a restart
	r.turn()
	if r.read("first").ResourceVersion != version || len(r.migrations()) != 1 || r.migrations()[0].UID != m.UID {
		r.Error("a status that says the same is written again, or the plan is another one after a restart")
	}
	return m
}

// waits: a second Change waits for the first, and says so.
func (r *rig) waits(first v1alpha1.Migration) {
	r.Helper()
	if err := r.create("second", spec); err != nil {
		r.Fatal(err)
	}
	r.turn()
	r.wants("second", "False", v1alpha1.ReasonWaiting, "Change first is first: its migration "+first.Name)
}

// keepsWindows: every Migration of a Change has its windows, or those that a user gave to the one before if the Change
// has none. An unknown time zone is no window.
func (r *rig) keepsWindows() {
	r.Helper()
	replans := func(windows any, want ...string) {
		r.Helper()
		r.edit("first", map[string]any{"windows": windows})
		time.Sleep(1100 * time.Millisecond) // the name of a plan follows from the second in which it was made
		r.turn()
		r.wants("first", "True", v1alpha1.ReasonPlanned, "has the plan")
		r.hasWindows(r.migrations()[0], want...)
	}
	r.patchMigration(r.migrations()[0].Name,
		`{"spec":{"windows":[{"from":"01:00","to":"02:00","timeZone":"UTC"}]}}`)
	good, bad := r.snapshot, *r.snapshot // the plan is withdrawn, and there is none until the node is back
	bad.Nodes = slices.Clone(good.Nodes)
	bad.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	r.snapshot = &bad
	r.edit("first", map[string]any{"bakeSeconds": 5})
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonRefused, "is not Ready")
	if all := r.migrations(); len(all) > 0 {
		r.Errorf("%d migrations", len(all))
	}
	r.snapshot = good
	r.planner = &Planner{Client: r.planner.Client, Holder: "theseus-controller@other (plans)", Events: r.events,
		AgentImage: r.planner.AgentImage, Version: r.planner.Version, Out: os.Stderr, Snapshot: r.planner.Snapshot}
	replans(nil, "01:00-02:00 UTC") // by another process
	if kept := r.read("first").Status.Windows; kept != nil {
		r.Errorf("they are kept although the next Migration has them: %v", kept)
	}
	night := map[string]any{"days": []string{"Sat"}, "from": "22:00", "to": "05:00", "timeZone": "Europe/Berlin"}
	replans([]any{night}, "Sat 22:00-05:00 Europe/Berlin")
	r.patchMigration(r.migrations()[0].Name, // over those of the Change
		`{"spec":{"windows":[{"from":"03:00","to":"04:00","timeZone":"UTC"}]}}`)
	r.edit("first", map[string]any{"bakeSeconds": 6})
	replans([]any{night}, "03:00-04:00 UTC")
	replans(nil)
	r.edit("first", map[string]any{"windows": []any{map[string]any{"from": "22:00", "to": "05:00",
		"timeZone": "Europe/Belin"}}})
	r.turn()
	r.wants("first", "False", v1alpha1.ReasonInvalid, `unknown time zone "Europe/Belin"`)
	replans([]any{night}, "Sat 22:00-05:00 Europe/Berlin")
	if p, _, err := journal.Load(r.Context(), r.admin.Dynamic, r.migrations()[0].Name); err != nil ||
		len(p.Change.Windows) > 0 {
		r.Errorf("the windows are a part of the plan: %v", err)
	}
}

// replicas: of two processes that look after the same Changes, one that has read them before the other acted does not
// write over what the other has done, and does not lose the windows of a user.
func (r *rig) replicas() {
	r.Helper()
	late := &Planner{Client: r.planner.Client, Holder: "theseus-controller@late (plans)", Events: r.events,
		AgentImage: r.planner.AgentImage, Version: r.planner.Version, Out: r.Output(), Snapshot: r.planner.Snapshot,
		looked: map[string]Looked{}, sources: map[string]read{}, plans: map[string]*facts{}}
	changes := func() *v1alpha1.Change { // as a process has listed them
		r.Helper()
		all, err := late.list(r.Context())
		i := slices.IndexFunc(all, func(c v1alpha1.Change) bool { return c.Name == "first" })
		if err != nil || i < 0 {
			r.Fatal(i, err)
		}
		return &all[i]
	}
	follows := func(change *v1alpha1.Change, migrations []v1alpha1.Migration) {
		r.Helper()
		if _, err := late.follow(r.Context(), change, migrations); err != nil {
			r.Fatal(err)
		}
	}
	time.Sleep(1100 * time.Millisecond) // the name of a plan follows from the second in which it was made

	// it is not the one that withdraws
	r.edit("first", map[string]any{"bakeSeconds": 7})
	before, planned := changes(), r.read("first").Status
	lease, _, err := journal.Acquire(r.Context(), run.Leases(r.admin), "theseus-controller@busy")
	if err != nil {
		r.Fatal(err)
	}
	var held *journal.HeldError
	if _, err := late.follow(r.Context(), before, r.migrations()); !errors.As(err, &held) {
		r.Errorf("it acts while another process has the lock: %v", err)
	}
	if now := r.read("first").Status; !alike(now, planned) {
		r.Errorf("without the lock it wrote %+v", now)
	}
	if err := lease.Release(r.Context()); err != nil {
		r.Fatal(err)
	}

	// the other has withdrawn the plan and made the next one
	before, stale := changes(), r.migrations()
	r.turn()
	made := r.migrations()
	status := r.read("first").Status
	follows(before, stale)
	if now := r.migrations(); len(made) != 1 || len(now) != 1 || now[0].UID != made[0].UID ||
		made[0].UID == stale[0].UID {
		r.Errorf("another plan was withdrawn, or made: %v, %v, %v", stale, made, now)
	}
	// it has listed the Change before the other was edited, planned, and withdrawn
	r.edit("first", map[string]any{"bakeSeconds": 8})
	time.Sleep(1100 * time.Millisecond)
	r.turn()
	made = r.migrations()
	follows(before, made)
	if now := r.migrations(); len(now) != 1 || now[0].UID != made[0].UID {
		r.Errorf("the plan of an edited Change was withdrawn for the Change before: %v", now)
	}
	if now := r.read("first").Status; now.Migration != made[0].Name || status.Migration == now.Migration {
		r.Errorf("it wrote over the status: %+v", now)
	}

	// it has listed the Change before the other withdrew its Migration with the windows of a user, which is gone by now
	r.patchMigration(made[0].Name, `{"spec":{"windows":[{"from":"03:00","to":"04:00","timeZone":"UTC"}]}}`)
	good, bad := r.snapshot, *r.snapshot
	bad.Nodes = slices.Clone(good.Nodes)
	bad.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
	r.edit("first", map[string]any{"bakeSeconds": 9})
	time.Sleep(1100 * time.Millisecond)
	before, r.snapshot = changes(), &bad
	r.turn()
	r.snapshot = good
	if all := r.migrations(); len(all) > 0 || r.read("first").Status.Windows == nil {
		r.Fatalf("%d migrations", len(all))
	}
	clear(late.looked)
	follows(before, nil)
	for _, m := range r.migrations() {
		r.hasWindows(m, "03:00-04:00 UTC")
	}
	follows(changes(), r.migrations())
	if all := r.migrations(); len(all) == 1 {
		r.hasWindows(all[0], "03:00-04:00 UTC")
	} else {
		r.Errorf("%d migrations", len(all))
	}
	r.edit("first", map[string]any{"bakeSeconds": 10}) // the next part finds the windows of the Change
	r.patchMigration(r.migrations()[0].Name, `{"spec":{"windows":[{"days":["Sat"],"from":"22:00","to":"05:00",`+
		`"timeZone":"Europe/Berlin"}]}}`)
	time.Sleep(1100 * time.Millisecond)
	r.turn()
}

func (r *rig) hasWindows(m v1alpha1.Migration, want ...string) {
	r.Helper()
	var got []string
	for _, one := range m.Spec.Windows {
		got = append(got, window.Text(one))
	}
	if !slices.Equal(got, want) {
		r.Errorf("Migration %s has the windows %q, want %q", m.Name, got, want)
	}
}

// plansAgain: an edit of the Change or of the manifest, and a change of the cluster make another plan, with another
// hash.
func (r *rig) plansAgain(first v1alpha1.Migration) v1alpha1.Migration {
	r.Helper()
	seen := []string{first.Spec.PlanHash}
	for what, disturb := range map[string]func(){
		"the Change": func() { r.edit("first", map[string]any{"bakeSeconds": 7}) },
		"the manifest": func() {
			r.configMap(map[string]string{"calico.yaml": string(cnitest.Text(r.T, "calico-manifest.yaml")) +
				"\n# edited\n"})
		},
		"the cluster": func() {
			snapshot := *r.snapshot
			snapshot.Budgets = append(slices.Clone(snapshot.Budgets),
				policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "late"}})
			r.snapshot = &snapshot
			clear(r.planner.looked)
		},
	} {
		disturb()
		time.Sleep(1100 * time.Millisecond) // the name of a plan follows from the second in which it was made
		r.turn()
		r.wants("first", "True", v1alpha1.ReasonPlanned, "has the plan")
		all := r.migrations()
		if len(all) != 1 || slices.Contains(seen, all[0].Spec.PlanHash) {
			r.Fatalf("%s was edited: %d migrations, the plan %s", what, len(all), all[0].Spec.PlanHash)
		}
		seen = append(seen, all[0].Spec.PlanHash)
	}
	r.wants("second", "False", v1alpha1.ReasonWaiting, "Change first is first")
	return r.migrations()[0]
}

// runs: a Change has the conditions of its Migration. An edit meanwhile has no effect on it, and a plan of its own
// afterwards.
func (r *rig) runs(first v1alpha1.Migration) {
	r.Helper()
	r.patchMigration(first.Name,
		`{"status":{"phase":"running","pages":1,"conditions":[{"type":"Approved","status":"True","reason":"EnoughApprovals","message":"approved by ann","lastTransitionTime":"2026-11-26T12:00:00Z"}]}}`)
	r.turn()
	status := r.read("first").Status
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApproved); c == nil ||
		c.Message != "approved by ann" || status.Phase != "running" {
		r.Errorf("%+v", status)
	}
	r.edit("first", map[string]any{"bakeSeconds": 8})
	r.turn()
	r.wants("first", "True", v1alpha1.ReasonEdited, "the edit has no effect on that run")
	if status := r.read("first").Status; status.PlanHash != first.Spec.PlanHash || r.migrations()[0].UID != first.UID {
		r.Errorf("an edit changed what runs: %+v", status)
	}
	r.patchMigration(first.Name, `{"status":{"phase":"rolled-back"}}`)
	time.Sleep(1100 * time.Millisecond)
	r.turn()
	if status := r.read("first").Status; status.PlanHash == first.Spec.PlanHash || status.Migration == first.Name {
		r.Errorf("the edit has no plan after the end of the run: %+v", status)
	}
	for _, m := range r.migrations() { // the one that runs, and the next
		r.hasWindows(m, "Sat 22:00-05:00 Europe/Berlin")
	}
}

// withdraws: the plan of a Change that was deleted goes, and the next Change gets its turn. What ran stays.
func (r *rig) withdraws() {
	r.Helper()
	if err := r.admin.Dynamic.Resource(resource).Delete(r.Context(), "first", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	r.turn() // withdraws
	r.turn()
	r.wants("second", "True", v1alpha1.ReasonPlanned, "has the plan")
	var of []string
	for _, m := range r.migrations() {
		origin, _ := journal.OriginOf(&m)
		of = append(of, origin.Name+" "+m.Status.Phase)
	}
	if slices.Sort(of); !slices.Equal(of, []string{"first rolled-back", "second "}) {
		r.Errorf("the migrations are %q", of)
	}
}

// limits: of many large Changes the oldest are looked at, the others say why not, and none of their manifests is kept.
func (r *rig) limits() {
	r.Helper()
	var before, after goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	const many, large = maxChanges + 15, 1 << 20
	for i := range many {
		if err := r.create(fmt.Sprintf("many-%02d", i), "{to: calico, manifestFrom: {inline: '"+
			strings.Repeat("x", large)+"'}}"); err != nil {
			r.Fatal(err)
		}
	}
	r.turn()
	goruntime.GC()
	goruntime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 10*large {
		r.Errorf("%d MiB are kept of %d Changes", kept>>20, many)
	}
	all, err := r.planner.list(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	refused := 0
	for _, c := range all {
		planned := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionPlanned)
		if planned != nil && planned.Reason == v1alpha1.ReasonTooMany {
			refused++
			if c.Spec.ManifestFrom != nil || len(c.Status.Next) == 0 ||
				!meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionStalled) {
				r.Errorf("%s is kept whole, or does not say what to do: %+v", c.Name, c.Status)
			}
		}
	}
	if refused != len(all)-maxChanges || refused == 0 {
		r.Errorf("%d of %d Changes are refused", refused, len(all))
	}
	version := r.read("many-64").ResourceVersion
	if spec := r.read("many-64").Spec; spec.ManifestFrom == nil || len(spec.ManifestFrom.Inline) != large {
		r.Error("the spec of a Change was changed")
	}
	r.turn()
	if r.read("many-64").ResourceVersion != version {
		r.Error("a status that says the same is written again")
	}
}

// refused: what the cluster's own rules refuse is a condition with its reason and what to do; nothing half made stays.
func (r *rig) refused() {
	r.Helper()
	bake := 100
	replans := func(reason, says string) { // the edit withdraws the plan, and the next one is refused
		r.Helper()
		bake++
		r.edit("second", map[string]any{"bakeSeconds": bake})
		time.Sleep(1100 * time.Millisecond)
		clear(r.planner.looked)
		clear(r.planner.sources)
		if err := r.planner.turn(r.Context()); err == nil {
			r.Errorf("%s: no error", reason)
		}
		r.wants("second", "False", reason, says)
		for _, m := range r.migrations() {
			if m.Status.Phase == "" {
				r.Errorf("%s: the Migration %s is half made", reason, m.Name)
			}
		}
	}
	quotas := r.admin.Typed.CoreV1().ResourceQuotas(v1alpha1.Namespace)
	hard := corev1.ResourceList{"count/migrations.theseus.dev": resourceapi.MustParse("0")}
	quota, err := quotas.Create(r.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err == nil {
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard}
		_, err = quotas.UpdateStatus(r.Context(), quota, metav1.UpdateOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the API server reads quotas from its cache
	replans(v1alpha1.ReasonQuotaExceeded, "exceeded quota: none")
	if err := quotas.Delete(r.Context(), "none", metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}

	strict := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "strict",
		Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if _, err := r.admin.Typed.CoreV1().Namespaces().Create(r.Context(), strict, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // no controller makes it here
	if _, err := r.admin.Typed.CoreV1().ServiceAccounts("strict").Create(r.Context(), account,
		metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "agent", Image: "agent"}}}}
	_, err = r.admin.Typed.CoreV1().Pods("strict").Create(r.Context(), pod, metav1.CreateOptions{})
	if reason, hint := admission.Cause(err); reason != v1alpha1.ReasonPodSecurity || hint == "" {
		r.Errorf("a pod on the host's network: %v, %q", err, reason)
	}

	{
		crds := resource.GroupVersion().WithResource("customresourcedefinitions")
		crds.Group, crds.Version = "apiextensions.k8s.io", "v1"
		object, err := r.admin.Dynamic.Resource(crds).Get(r.Context(),
			"migrations."+v1alpha1.Group, metav1.GetOptions{})
		if err != nil {
			r.Fatal(err)
		}
		versions, _, _ := unstructured.NestedSlice(object.Object, "spec", "versions")
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties",
			"spec", "properties", "planDigest")
		_ = unstructured.SetNestedSlice(object.Object, versions, "spec", "versions")
		if _, err = r.admin.Dynamic.Resource(crds).Update(r.Context(), object, metav1.UpdateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	time.Sleep(3 * time.Second) // the API server serves the schema a moment later
	replans(v1alpha1.ReasonOldCRDs, "the CRD in the cluster is of an older version")
	for _, crd := range manifest.CRDs() {
		if crd.GetName() == "migrations."+v1alpha1.Group {
			r.apply(crd)
		}
	}
	time.Sleep(3 * time.Second)

	if err := r.admin.Typed.CoreV1().Namespaces().Delete(r.Context(), v1alpha1.Namespace,
		metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	time.Sleep(time.Second)
	replans(v1alpha1.ReasonNamespaceTerminating, "being terminated")
}

func (r *rig) turn() {
	r.Helper()
	clear(r.planner.sources) // they are read again after 15 s
	if err := r.planner.turn(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) create(name, spec string) error {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte("{apiVersion: "+v1alpha1.APIVersion+", kind: Change, metadata: {name: "+name+
		"}, spec: "+spec+"}"), &object.Object); err != nil {
		r.Fatal(err)
	}
	_, err := r.admin.Dynamic.Resource(resource).Create(r.Context(), object, metav1.CreateOptions{})
	return err
}

func (r *rig) edit(name string, spec map[string]any) {
	r.Helper()
	text, err := (&unstructured.Unstructured{Object: map[string]any{"kind": "Change", "spec": spec}}).MarshalJSON()
	if err == nil {
		_, err = r.admin.Dynamic.Resource(resource).Patch(r.Context(), name, types.MergePatchType,
			text, metav1.PatchOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) patchMigration(name, text string) {
	r.Helper()
	migrations := resource.GroupVersion().WithResource(manifest.Plural("Migration"))
	if _, err := r.admin.Dynamic.Resource(migrations).Namespace(v1alpha1.Namespace).Patch(r.Context(), name,
		types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) read(name string) v1alpha1.Change {
	r.Helper()
	object, err := r.admin.Dynamic.Resource(resource).Get(r.Context(), name, metav1.GetOptions{})
	var change v1alpha1.Change
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &change)
	}
	if err != nil {
		r.Fatal(err)
	}
	return change
}

func (r *rig) migrations() []v1alpha1.Migration {
	r.Helper()
	all, err := journal.List(r.Context(), r.admin.Dynamic)
	if err != nil {
		r.Fatal(err)
	}
	return all
}

func (r *rig) wants(name, status, reason, says string) {
	r.Helper()
	now := r.read(name)
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionPlanned)
	if c == nil || string(c.Status) != status || c.Reason != reason || !strings.Contains(c.Message, says) ||
		c.ObservedGeneration != now.Generation {
		r.Fatalf("%s: %+v, want %s, %s, %q", name, c, status, reason, says)
	}
	if len(now.Status.Next) == 0 {
		r.Errorf("%s: %s does not say what to do next", name, reason)
	}
	for len(r.events.Events) > 0 {
		r.told = append(r.told, <-r.events.Events)
	}
	if status == "False" && !slices.ContainsFunc(r.told, func(event string) bool {
		_, text, _ := strings.Cut(event, " ")
		return strings.HasPrefix(text, reason+" ") && strings.Contains(text, "; ")
	}) {
		r.Errorf("%s: no event tells %s, and what to do: %q", name, reason, r.told)
	}
}

func (r *rig) configMap(data map[string]string) {
	r.Helper()
	maps := r.admin.Typed.CoreV1().ConfigMaps(v1alpha1.Namespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "calico"}, Data: data}
	if _, err := maps.Update(r.Context(), object, metav1.UpdateOptions{}); err == nil {
		return
	}
	if _, err := maps.Create(r.Context(), object, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// apply applies objects, and waits until their kinds are served.
func (r *rig) apply(objects ...unstructured.Unstructured) {
	r.Helper()
	kubetest.Apply(r, r.admin, objects...)
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if _, err := r.admin.Dynamic.Resource(resource).List(r.Context(), metav1.ListOptions{}); err == nil {
			return
		} else if time.Now().After(end) {
			r.Fatal(err)
		}
	}
}
