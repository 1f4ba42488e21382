package control

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/execute"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// freeze sets the annotation of Theseus' namespace.
func freeze(t *testing.T, client *kube.Client, reason string) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": v1alpha1.Namespace,
			"annotations": map[string]any{v1alpha1.AnnotationFreeze: reason}}}}
	if err := client.Dynamic.(*dynamicfake.FakeDynamicClient).Tracker().Create(
		schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, namespace, ""); err != nil {
		t.Fatal(err)
	}
}

// in3Days is a window that is not open, and opens within the week.
func in3Days() v1alpha1.Window {
	return v1alpha1.Window{Days: []string{time.Now().UTC().Add(72 * time.Hour).Format("Mon")}, From: "00:00",
		To: "24:00", TimeZone: "UTC"}
}

// TestResumeKeepsTimes: outside of its windows and during a freeze, this machine does not continue a migration. A
// rollback it does. That the plan is not known here is only said after that.
func TestResumeKeepsTimes(t *testing.T) {
	unknown := "does not know which plan"
	back := engine.Record{Event: engine.RollingBack, Result: engine.ResultAsked, Error: "the operator requested it"}
	for name, test := range map[string]struct {
		windows []v1alpha1.Window
		frozen  bool
		desire  v1alpha1.Desire
		anyTime bool
		record  engine.Record
		code    int
		says    []string
	}{
		"no windows": {code: exit.Usage, says: []string{unknown}},
		"outside": {windows: []v1alpha1.Window{in3Days()}, code: exit.Failed,
			says: []string{"held must not continue now: outside of its windows; the next window opens",
				"--in-cluster", "--outside-windows"}},
		"outside, anyway": {windows: []v1alpha1.Window{in3Days()}, anyTime: true,
			code: exit.Usage, says: []string{unknown}},
		"unknown zone": {windows: []v1alpha1.Window{{From: "22:00", To: "05:00", TimeZone: "Mars"}},
			code: exit.Failed, says: []string{`unknown time zone "Mars"`, "hint: change spec.windows"}},
		"frozen": {frozen: true, code: exit.Failed, says: []string{"frozen: incident 12",
			"hint: kubectl annotate namespace theseus-system theseus.dev/freeze-"}},
		"frozen, anyway": {frozen: true, anyTime: true, code: exit.Failed, says: []string{"frozen: incident 12"}},
		"rollback": {windows: []v1alpha1.Window{in3Days()}, frozen: true, desire: v1alpha1.DesireRollback,
			code: exit.Usage, says: []string{unknown}},
		"rollback goes on": {windows: []v1alpha1.Window{in3Days()}, frozen: true, record: back,
			code: exit.Usage, says: []string{unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("THESEUS_STATE_DIR", t.TempDir())
			p := clitest.Plan(t, nil)
			record := test.record
			if record.Event == "" {
				record.Event = engine.Paused
			}
			client := controlled(t, p, clitest.Records(t, p, record)...)
			patchMigration(t, client, p.Name, map[string]any{"spec": map[string]any{"windows": test.windows}})
			if test.frozen {
				freeze(t, client, "incident 12")
			}
			var out bytes.Buffer
			code := exit.Code(&out, takeOver(t.Context(), quietApp(&out, ""), client, p.Name, test.desire,
				mirror.Access{}, &approval.Flags{}, new(execute.Outward), new(execute.Writes), test.anyTime))
			if code != test.code {
				t.Errorf("exit %d, want %d:\n%s", code, test.code, out.String())
			}
			for _, text := range test.says {
				if !strings.Contains(out.String(), text) {
					t.Errorf("%q is not in:\n%s", text, out.String())
				}
			}
		})
	}
}

// TestStatusTimes: status says when the steps of a migration may begin.
func TestStatusTimes(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	client := controlled(t, p)
	opens := time.Now().UTC().Add(72*time.Hour).Format("Mon 2006-01-02") + " 00:00 UTC"
	patchMigration(t, client, p.Name,
		map[string]any{"spec": map[string]any{"inCluster": true, "windows": []v1alpha1.Window{in3Days()}}})
	freeze(t, client, "incident 12")
	var out bytes.Buffer
	if err := status(t.Context(), quietApp(&out, ""), client, p.Name); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"frozen: incident 12; kubectl annotate",
		"windows: " + in3Days().Days[0] + " 00:00-24:00 UTC; the next one opens " + opens + "\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := status(t.Context(), quietApp(&out, "json"), client, p.Name); err != nil {
		t.Fatal(err)
	}
	var said struct {
		Frozen     string
		Windows    []string
		NextWindow time.Time
		Name       string
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || said.Frozen != "incident 12" ||
		len(said.Windows) != 1 || said.NextWindow.Before(time.Now()) || said.Name != p.Name {
		t.Errorf("%+v, %v in %s", said, err, out.String())
	}
}
