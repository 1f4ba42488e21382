package controller

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/window"
)

// waitsForTimes: an approved migration does not begin while the cluster is frozen, nor outside of its windows, and the
// API server and the controller agree about which windows are valid. It ends with neither a freeze nor windows.
func waitsForTimes(t *testing.T, admin *kube.Client, c *Controller) {
	t.Helper()
	freeze := func(reason any) {
		t.Helper()
		data, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationFreeze: reason}}})
		if err == nil {
			_, err = admin.Typed.CoreV1().Namespaces().Patch(t.Context(), v1alpha1.Namespace, types.MergePatchType,
				data, metav1.PatchOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	later := time.Now().UTC().Add(72 * time.Hour).Format("Mon")
	windows := func(all ...v1alpha1.Window) error {
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"windows": all}})
		if err == nil {
			_, err = admin.Dynamic.Resource(resource("Migration")).Namespace(v1alpha1.Namespace).Patch(t.Context(), "m",
				types.MergePatchType, data, metav1.PatchOptions{})
		}
		return err
	}
	valid := v1alpha1.Window{Days: []string{later}, From: "22:00", To: "24:00", TimeZone: "Europe/Berlin"}
	for name, test := range map[string]struct {
		change func(*v1alpha1.Window)
		ok     bool
	}{
		"valid":       {func(*v1alpha1.Window) {}, true},
		"every day":   {func(w *v1alpha1.Window) { w.Days = nil }, true},
		"UTC":         {func(w *v1alpha1.Window) { w.TimeZone = "UTC" }, true},
		"deep zone":   {func(w *v1alpha1.Window) { w.TimeZone = "America/Argentina/Buenos_Aires" }, true},
		"offset zone": {func(w *v1alpha1.Window) { w.TimeZone = "Etc/GMT+5" }, true},
		"day":         {func(w *v1alpha1.Window) { w.Days = []string{"Di"} }, false},
		"from 24:00":  {func(w *v1alpha1.Window) { w.From = "24:00" }, false},
		"short hour":  {func(w *v1alpha1.Window) { w.From = "9:00" }, false},
		"no time":     {func(w *v1alpha1.Window) { w.To = "24:01" }, false},
		"empty":       {func(w *v1alpha1.Window) { w.From = "24:00"; w.To = "24:00" }, false},
		"no length":   {func(w *v1alpha1.Window) { w.To = "22:00" }, false},
		"no zone":     {func(w *v1alpha1.Window) { w.TimeZone = "" }, false},
		"path":        {func(w *v1alpha1.Window) { w.TimeZone = "../localtime" }, false},
	} {
		one := valid
		test.change(&one)
		stored := windows(one)
		_, read := window.Of([]v1alpha1.Window{one})
		if (stored == nil) != test.ok || (read == nil) != test.ok {
			t.Errorf("%s: the API server says %v, package window %v", name, stored, read)
		}
	}
	if err := windows(slices.Repeat([]v1alpha1.Window{valid}, v1alpha1.MaxWindows+1)...); err == nil {
		t.Error("too many windows are stored")
	}

	unknown := valid
	unknown.TimeZone = "Europe/Belin"
	if err := windows(valid, unknown); err != nil {
		t.Fatal(err)
	}
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionDegraded, "True", v1alpha1.ReasonBadWindows)
	freeze("incident 12")
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonFrozen)
	wants(t, admin, v1alpha1.ConditionPaused, "True", v1alpha1.ReasonFrozen)
	wants(t, admin, v1alpha1.ConditionDegraded, "False", v1alpha1.ReasonHealthy)
	if err := windows(valid); err != nil {
		t.Fatal(err)
	}
	freeze(nil)
	turns(t, c)
	wants(t, admin, v1alpha1.ConditionPaused, "True", v1alpha1.ReasonOutsideWindow)
	if err := windows(); err != nil {
		t.Fatal(err)
	}
}

// TestTimes: the controller waits while the cluster is frozen, and gives a step that follows the steps that are done
// its time.
func TestTimes(t *testing.T) {
	c, p, m := entered(t)
	if _, err := c.unfit(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for done, want := range map[int]time.Duration{0: time.Duration(p.Steps[0].Estimate),
		1: time.Duration(p.Steps[1].Estimate), len(p.Steps): 0} {
		m.Status.Done = done
		if got := c.next(m); got != want || done == 0 && got == 0 {
			t.Errorf("after %d steps, the next one takes %s, not %s", done, got, want)
		}
	}
	if c.next(migration(func(m *v1alpha1.Migration) { m.Name = "unread" })) != 0 {
		t.Error("the time of a plan that was not read is known")
	}
}

// TestHeldRunContinues: a journal that ends with a pause that ends by itself may go on without a person, another one
// not.
func TestHeldRunContinues(t *testing.T) {
	c, p, m := entered(t)
	m.Status.Observed = &v1alpha1.Observed{}
	start := engine.Record{Seq: 1, Event: engine.Started, Data: []byte(`{"plan":"` + p.Hash + `"}`)}
	for result, settles := range map[string]bool{"": true, engine.ResultOutsideWindow: false,
		engine.ResultFrozen: false} {
		err := c.admit(t.Context(), m, p,
			[]engine.Record{start, {Seq: 2, Event: engine.Paused, Result: result, Error: "x"}})
		if (err == errSettled) != settles || err != nil && !settles {
			t.Errorf("%q: %v", result, err)
		}
	}
}
