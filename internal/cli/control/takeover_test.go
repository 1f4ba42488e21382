package control

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// servedPlan is a plan whose values come from a server of flags: a run asks it at once, with this machine's token.
func servedPlan(t *testing.T, server string) *plan.Plan {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	values := map[string]string{}
	for i := range snapshot.Nodes {
		values[snapshot.Nodes[i].Name] = "Enabled"
	}
	p, err := plan.Make(snapshot, v1alpha1.ChangeSpec{Flag: "nftablesMode", AgentImage: "theseus.dev/agent:dev"},
		drivers.All(), nil, plan.Options{Version: "v0.0.0-test",
			Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "held",
			Decided: &plan.Decided{Origin: plan.Origin{Source: server, Flag: "net"},
				Knob: "nftablesMode", Values: values}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// hookedPlan is a plan of the strategy surge, which runs commands on the machine that applies it.
func hookedPlan(t *testing.T, hook string) *plan.Plan {
	t.Helper()
	p, err := plan.Make(cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16",
			AgentImage: "theseus.dev/agent:dev", Strategy: "surge", AddHook: hook, RemoveHook: `pool "remove it"`},
		drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Name: "held",
			Manifest: cnitest.Fixture(t, "calico-manifest.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// holding is a cluster that holds a plan.
func holding(t testing.TB, uid string, p *plan.Plan) *kube.Client {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage", "Approval"} {
		kinds[schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
			Resource: manifest.Plural(kind)}] = kind + "List"
	}
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	system.UID = "cluster-a"
	if uid != "" {
		system.UID = "cluster-b"
	}
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, "test") // what is asked otherwise is not there
	if err != nil {
		t.Fatal(err)
	}
	client.Typed, client.Dynamic = fake.NewClientset(system),
		dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	if err := journal.Create(t.Context(), client.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	return client
}

// told is a machine that was told to run a plan.
func told(t testing.TB, p *plan.Plan) {
	t.Helper()
	if err := approval.Keep(p); err != nil {
		t.Fatal(err)
	}
}

// fileOfPlan writes a plan to a file.
func fileOfPlan(t *testing.T, p *plan.Plan) string {
	t.Helper()
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// flagServer counts who asks it.
func flagServer(t *testing.T) (string, *atomic.Int64) {
	t.Helper()
	asked := &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// TestTakeOverRefuses: a cluster holds a plan that is sound, and not the one that was approved. Neither its hook nor
// the server that gets this machine's token is ever reached, whatever command is used.
func TestTakeOverRefuses(t *testing.T) {
	server, asked := flagServer(t)
	trace := filepath.Join(t.TempDir(), "ran")
	approvedPlan := hookedPlan(t, "true")
	for name, planted := range map[string]*plan.Plan{"a token": servedPlan(t, server),
		"a hook": hookedPlan(t, "touch "+trace)} {
		for kind, test := range map[string]struct {
			known bool // this machine was told to run the approved plan
			uid   string
			flags approval.Flags
			code  int
			says  string
		}{
			"unknown": {code: exit.Usage, says: "does not know which plan"},
			"told another": {known: true, code: exit.NeedsPerson,
				says: "not the one that this machine was told to run"},
			"file of another": {flags: approval.Flags{File: fileOfPlan(t, approvedPlan)}, code: exit.NeedsPerson,
				says: "the plan of held in the cluster is not the one in"},
			"hash of another": {flags: approval.Flags{Expect: approvedPlan.Hash}, code: exit.NeedsPerson,
				says: "in the cluster is not the expected one"},
			"another cluster": {uid: "other", flags: approval.Flags{Expect: planted.Hash}, code: exit.NeedsPerson,
				says: "for another cluster (cluster-a, this is cluster-b)"},
			"another's head": {flags: approval.Flags{Expect: planted.Hash, Head: approvedPlan.Hash},
				code: exit.NeedsPerson, says: "has the head"},
			"a head too early": {flags: approval.Flags{Expect: planted.Hash, Head: "00"},
				code: exit.NeedsPerson, says: "has the head"},
		} {
			for _, desire := range []v1alpha1.Desire{v1alpha1.DesireRun, v1alpha1.DesireRollback} {
				t.Run(fmt.Sprintf("%s/%s/%s", name, kind, desire), func(t *testing.T) {
					t.Setenv("THESEUS_STATE_DIR", t.TempDir())
					t.Setenv("THESEUS_FLAGS_TOKEN", "secret")
					if test.known {
						told(t, approvedPlan)
					}
					var out bytes.Buffer
					a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out},
						Signals: &interrupt.Signals{Err: &out}}
					err := takeOver(t.Context(), a, holding(t, test.uid, planted), "held", desire, mirror.Access{},
						&test.flags, new(execute.Outward), new(execute.Writes), false)
					if code := exit.Code(&out, err); code != test.code || !strings.Contains(out.String(), test.says) ||
						!strings.Contains(out.String(), "hint: ") {
						t.Errorf("exit %d, want %d with %q:\n%s", code, test.code, test.says, out.String())
					}
					if _, err := os.Stat(trace); err == nil || asked.Load() > 0 {
						t.Errorf("the hook ran (%v), or %d requests reached the server", err == nil, asked.Load())
					}
				})
			}
		}
	}
}

// TestTakeOverKnows: a machine learns in four ways which plan was approved, and keeps it.
func TestTakeOverKnows(t *testing.T) {
	p := hookedPlan(t, "true")
	for name, test := range map[string]struct {
		told  bool
		flags approval.Flags
		typed string
	}{
		"told before":   {told: true},
		"its file":      {flags: approval.Flags{File: fileOfPlan(t, p)}},
		"its hash":      {flags: approval.Flags{Expect: p.Hash}},
		"both":          {flags: approval.Flags{File: fileOfPlan(t, p), Expect: strings.ToUpper(p.Hash)}},
		"on a terminal": {typed: p.To() + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("THESEUS_STATE_DIR", t.TempDir())
			if test.told {
				told(t, p)
			}
			var out bytes.Buffer
			a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
			if test.typed != "" {
				a.In = terminalWith(t, test.typed)
			}
			if _, err := approval.Approve(t.Context(), a, holding(t, "", p), p, nil, &test.flags); err != nil {
				t.Fatal(err)
			}
			if known, err := approval.Of(p.Name); known != p.Hash {
				t.Errorf("keeps %q, %v", known, err)
			}
		})
	}
}

// TestTakeOverShows: what a plan from the cluster would do from this machine is shown before it is asked for, and
// nothing is kept where the answer is no.
func TestTakeOverShows(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := hookedPlan(t, "/bin/evil 'a b'")
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: terminalWith(t, "no\n"), Out: &out, Err: &out}}
	_, err := approval.Approve(t.Context(), a, holding(t, "", p), p, nil, &approval.Flags{})
	if code := exit.Code(&out, err); code != exit.Stopped {
		t.Errorf("exit %d: %v", code, err)
	}
	for _, want := range []string{p.Hash, "It runs these commands on this machine:\n  /bin/evil 'a b'\n" +
		"  pool 'remove it'\n", "It deletes:\n", "DaemonSet/", "The point of no return is ahead: step "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if known, _ := approval.Of(p.Name); known != "" {
		t.Errorf("keeps %q", known)
	}
}

// terminalWith is a terminal on which something was typed.
func terminalWith(t *testing.T, typed string) *os.File {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	if _, err := person.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	return terminal
}

// TestForgotten: the cluster's data came back from a backup, in which the run was not as far. resume, rollback and
// status say what only this machine knows, and exit with 6.
func TestForgotten(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := hookedPlan(t, "true")
	told(t, p)
	var steps []engine.Record
	for _, s := range p.Steps {
		steps = append(steps, engine.Record{Event: engine.StepBegan, Step: s.ID})
		if s.NoReturn {
			steps = append(steps, engine.Record{Event: engine.Intended, Step: s.ID, Action: s.Actions[0].ID})
			break
		}
		steps = append(steps, engine.Record{Event: engine.StepDone, Step: s.ID})
	}
	records := clitest.Records(t, p, steps...)
	client := holding(t, "", p)
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records[:5]...); err != nil {
		t.Fatal(err)
	}
	dir, err := statedir.Make(p.Name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := journal.OpenFile(filepath.Join(dir, run.JournalFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Append(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	for name, command := range map[string]func(a *app.App) error{
		"resume": func(a *app.App) error {
			return takeOver(t.Context(), a, client, p.Name, v1alpha1.DesireRun, mirror.Access{}, &approval.Flags{},
				new(execute.Outward), new(execute.Writes), false)
		},
		"rollback": func(a *app.App) error {
			return takeOver(t.Context(), a, client, p.Name, v1alpha1.DesireRollback, mirror.Access{},
				&approval.Flags{}, new(execute.Outward), new(execute.Writes), false)
		},
		"status": func(a *app.App) error { return status(t.Context(), a, client, p.Name) },
	} {
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out},
			Signals: &interrupt.Signals{Err: &out}}
		code := exit.Code(&out, command(a))
		for _, want := range []string{"by this machine's journal, held is past its point of no return",
			"its journal ends before record 6", "only this machine has: ", "step-done", "hint: "} {
			if code != exit.NeedsPerson || !strings.Contains(out.String(), want) {
				t.Errorf("%s: exit %d, %q is not in:\n%s", name, code, want, out.String())
			}
		}
	}
}

// TestStatusSaysHead: what --expect and --expect-head ask for is what status says.
func TestStatusSaysHead(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := hookedPlan(t, "true")
	client := holding(t, "", p)
	records := clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID})
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records...); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
	if err := status(t.Context(), a, client, p.Name); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "probes: ") {
		t.Errorf("nothing was measured:\n%s", out.String())
	}
	head := records[1].Chain
	for _, want := range []string{"plan: " + p.Hash + "\n", "journal: " + head + ", 2 records\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if got, err := approval.Approve(t.Context(), a, client, p, records,
		&approval.Flags{Expect: p.Hash, Head: head}); err != nil || got != head {
		t.Errorf("%q, %v", got, err)
	}
}

// TestStatusSaysWhatProbesSaw: status shows the figures of the view, from the evidence that the run keeps. After the
// end it does not read what the probes report now: that is of another run.
func TestStatusSaysWhatProbesSaw(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := hookedPlan(t, "true")
	client := holding(t, "", p)
	dir, err := statedir.Make(p.Name)
	if err != nil {
		t.Fatal(err)
	}
	kept := kube.Collected{Paths: []v1alpha1.Path{{ID: "a/old>b/old/udp"}},
		Results: []v1alpha1.PathResult{{ID: "a/old>b/old/udp", Sent: 100, Answered: 98,
			Gaps: []v1alpha1.Gap{{From: time.Unix(1, 0), Millis: 20, Probes: 2}}}}}
	if err := outfile.WriteJSON(filepath.Join(dir, run.EvidenceFile), kept); err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		"": "probes: 1 path, 100 probes, 2 lost, 0 denied answered, longest gap 20 ms (as kept; some evidence in " +
			"the cluster cannot be read: ",
		"json": `"evidence":{"paths":1,"sent":100,"lost":2,"leaked":0,"longestGapMillis":20}`,
	} {
		var out bytes.Buffer
		a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}, Output: output}
		if err := status(t.Context(), a, client, p.Name); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%v, %q is not in:\n%s", err, want, out.String())
		}
	}
	if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(),
		clitest.Records(t, p, engine.Record{Event: engine.Finished, Result: engine.ResultDone})...); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: &out, Err: &out}}
	if err := status(t.Context(), a, client, p.Name); err != nil ||
		!strings.Contains(out.String(), "longest gap 20 ms\n") {
		t.Errorf("after the end: %v, %s", err, out.String())
	}
}
