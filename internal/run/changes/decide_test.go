package changes

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func change(name string, generation int64) *v1alpha1.Change {
	return &v1alpha1.Change{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name),
		Generation: generation}}
}

// made is a Migration of a version of a Change, with conditions that are true; "Degraded:REASON" gives the reason.
func made(of string, generation int64, phase string, conditions ...string) *v1alpha1.Migration {
	m := &v1alpha1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "m-" + of, CreationTimestamp: metav1.NewTime(noon)},
		Spec: v1alpha1.MigrationSpec{InCluster: true, PlanHash: "hash"}, Status: v1alpha1.MigrationStatus{Phase: phase}}
	if of != "" {
		text, _ := json.Marshal(v1alpha1.ChangeOrigin{Name: of, UID: "uid-" + of,
			Generation: generation, ManifestDigest: "d1"})
		m.Annotations = map[string]string{v1alpha1.AnnotationChange: string(text)}
	}
	for _, text := range conditions {
		kind, reason, _ := strings.Cut(text, ":")
		m.Status.Conditions = append(m.Status.Conditions,
			metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: "because"})
	}
	return m
}

func TestDecide(t *testing.T) {
	long, short := noon.Add(-againEvery), noon.Add(-time.Second)
	taken := made("a", 1, "running")
	taken.Spec.InCluster = false
	for name, test := range map[string]struct {
		own, other *v1alpha1.Migration
		generation int64
		digest     string
		looked     time.Time
		want       Do
		reason     string
	}{
		"new":                {want: Plan},
		"tried a moment ago": {looked: short, want: Leave},
		"tried long ago":     {looked: long, want: Plan},
		"another migration":  {other: made("", 0, "running"), want: Wait, reason: v1alpha1.ReasonWaiting},
		"planned":            {own: made("a", 1, ""), looked: short, want: Tell},
		"planned long ago":   {own: made("a", 1, ""), looked: long, want: Compare},
		"approved long ago":  {own: made("a", 1, "", "Approved:"), looked: long, want: Tell},
		"edited": {own: made("a", 1, ""), generation: 2, looked: short, want: Replan,
			reason: v1alpha1.ReasonPlanning},
		"edited after the approval": {own: made("a", 1, "new", "Approved:"), generation: 2, want: Replan,
			reason: v1alpha1.ReasonPlanning},
		"manifest edited": {own: made("a", 1, ""), digest: "d2", looked: short, want: Replan,
			reason: v1alpha1.ReasonPlanning},
		"manifest cannot be read": {own: made("a", 1, ""), digest: "-", looked: short, want: Tell},
		"stale when it was to begin": {own: made("a", 1, "", "Approved:", "Degraded:StalePlan"), want: Replan,
			reason: v1alpha1.ReasonStale},
		"of another release": {own: made("a", 1, "", "Approved:", "Degraded:UnknownFormat"), want: Replan,
			reason: v1alpha1.ReasonStale},
		"lacks permissions":              {own: made("a", 1, "", "Approved:", "Degraded:RightsMissing"), want: Tell},
		"runs":                           {own: made("a", 1, "running"), want: Tell},
		"runs, and the plan looks stale": {own: made("a", 1, "running", "Degraded:StalePlan"), want: Tell},
		"edited while it runs":           {own: made("a", 1, "running"), generation: 2, want: Tell},
		"a laptop has it":                {own: taken, generation: 2, want: Tell},
		"done":                           {own: made("a", 1, "done"), looked: long, want: Tell},
		"rolled back":                    {own: made("a", 1, "rolled-back"), looked: long, want: Tell},
		"done, and edited since":         {own: made("a", 1, "done"), generation: 2, want: Plan},
		"done, edited, and another runs": {own: made("a", 1, "done"), generation: 2, other: made("b", 1, ""),
			want: Wait, reason: v1alpha1.ReasonWaiting},
		"planned beside another": {own: made("a", 1, ""), other: made("b", 1, ""), looked: short, want: Tell},
	} {
		s := Situation{Change: change("a", max(test.generation, 1)), Own: test.own, Other: test.other,
			ManifestDigest: "d1", Now: noon}
		if test.digest != "" {
			s.ManifestDigest = strings.Trim(test.digest, "-")
		}
		if !test.looked.IsZero() {
			s.Looked = Looked{s.Change.Generation, s.ManifestDigest, test.looked}
		}
		if got := Decide(s); got.Do != test.want || got.Reason != test.reason || got.Do == Replan && got.Why == "" {
			t.Errorf("%s: %+v, want %s %s", name, got, test.want, test.reason)
		}
	}
	// An edit counts at once, however short ago the Change was planned in vain.
	s := Situation{Change: change("a", 2), ManifestDigest: "d1", Looked: Looked{1, "d1", short}, Now: noon}
	if got := Decide(s); got.Do != Plan {
		t.Errorf("edited after it was planned in vain: %+v", got)
	}
}

func TestSplit(t *testing.T) {
	later := made("a", 2, "")
	later.CreationTimestamp = metav1.NewTime(noon.Add(time.Hour))
	ended, foreign, gone := made("a", 1, "done"), made("", 0, "running"), made("b", 1, "")
	own, other := split(change("a", 2), []v1alpha1.Migration{*ended, *later, *foreign, *gone})
	if own == nil || own.CreationTimestamp != later.CreationTimestamp || other == nil || other.Name != foreign.Name {
		t.Errorf("%v, %v", own, other)
	}
	found := orphans([]v1alpha1.Migration{*ended, *later, *foreign, *gone, *made("c", 1, "running")},
		[]v1alpha1.Change{*change("a", 1)})
	if len(found) != 1 || found[0].Name != "m-b" {
		t.Errorf("orphans: %v", found)
	}
}

// TestStatus: a person reads what is wrong and what to do, and the conditions of the Migration are those of the Change.
func TestStatus(t *testing.T) {
	a := change("a", 2)
	own := made("a", 2, "", "Approved:EnoughApprovals")
	status := of(a, own, &facts{summary: []string{"three nodes"}, findings: []finding.Finding{{ID: "x/info",
		Severity: finding.Info}, {ID: "x/warn", Severity: finding.Warn}}}).status(a, own, noon)
	text, _ := json.Marshal(status)
	for _, part := range []string{`"migration":"m-a"`, `"planHash":"hash"`, `"manifestDigest":"d1"`,
		"theseus approve m-a --plan plan.yaml", "theseus rights operate --plan plan.yaml",
		`"type":"Planned","status":"True","observedGeneration":2`,
		`"type":"Approved","status":"True","observedGeneration":2`, `"summary":["three nodes"]`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	if status.Approval != nil || strings.Contains(string(text), "--sign") {
		t.Errorf("nothing is known of signatures: %s", text)
	}
	for signedOnly, command := range map[bool]string{true: "theseus approve m-a --plan plan.yaml --sign KEY",
		false: "theseus approve m-a --plan plan.yaml"} {
		own.Status.Approval = &v1alpha1.ApprovalCount{Needed: 2, Counted: 1, SignedOnly: signedOnly}
		if counted := of(a, own, nil).status(a, own, noon); counted.Approval != own.Status.Approval ||
			!slices.Contains(counted.Next, "approve it: "+command) {
			t.Errorf("signed only: %t: %+v", signedOnly, counted)
		}
	}
	own.Status.Approval = nil
	if status.Findings[0].ID != "x/warn" {
		t.Errorf("the most severe finding is not the first: %+v", status.Findings)
	}
	a.Status = status
	again := of(a, own, nil).status(a, own, noon.Add(time.Hour))
	if !again.Conditions[0].LastTransitionTime.Equal(&status.Conditions[0].LastTransitionTime) {
		t.Error("the time of a transition changed without one")
	}
	late := of(change("a", 3), made("a", 2, "running"), nil)
	if !late.planned || late.reason != v1alpha1.ReasonEdited ||
		!strings.Contains(late.message, "the edit has no effect") {
		t.Errorf("%+v", late)
	}
	if d := waiting(made("b", 1, "")); !strings.Contains(d.message,
		"Change b is first: its migration m-b has not ended") || !strings.Contains(d.next[0], "delete Change b") {
		t.Errorf("%+v", d)
	}
	block := []finding.Finding{{ID: "cidr/overlap", Severity: finding.Block,
		Subject: finding.Subject{Kind: "Node", Name: "n"}, Message: "overlaps", Fix: "another range"}}
	d := blocked(finding.NewResult(block, nil), block)
	if got := d.status(a, nil, noon); d.planned || !strings.Contains(d.message, "cidr/overlap (Node/n): overlaps") ||
		got.Findings[0].Fix != "another range" || got.Migration != "" || len(got.Conditions) != 4 {
		t.Errorf("%+v", got)
	}
	if long := cut(strings.Repeat("ä", maxText), maxText); len(long) > maxText+3 {
		t.Errorf("%d bytes", len(long))
	}
}

// TestUsersWindows: windows that a user gave to a Migration are the user's also if its Change has some, or if the user
// removed those; windows of a Change that were edited since are not overruled.
func TestUsersWindows(t *testing.T) {
	day := v1alpha1.Window{From: "09:00", To: "17:00", TimeZone: "UTC"}
	night := v1alpha1.Window{From: "22:00", To: "05:00", TimeZone: "UTC"}
	all := func(windows ...v1alpha1.Window) []v1alpha1.Window { return windows }
	for name, test := range map[string]struct {
		given, change, own []v1alpha1.Window
		users              bool
	}{
		"none":                           {},
		"those of the Change":            {all(night), all(night), all(night), false},
		"the user's, the Change's none":  {nil, nil, all(day), true},
		"the user's over the Change's":   {all(night), all(night), all(day), true},
		"the user's added":               {all(night), all(night), all(night, day), true},
		"the user removed them":          {all(night), all(night), nil, true},
		"the Change was edited":          {all(night), all(day), all(night), false},
		"the Change was edited too":      {all(night), all(day), all(night, day), false},
		"the Change has some by now":     {nil, all(night), all(day), false},
		"the Change has none any longer": {all(night), nil, all(day), false},
	} {
		m := made("a", 1, "")
		text, _ := json.Marshal(v1alpha1.ChangeOrigin{Name: "a", UID: "uid-a", Windows: len(test.given) > 0,
			Given: test.given})
		m.Annotations[v1alpha1.AnnotationChange], m.Spec.Windows = string(text), test.own
		c := change("a", 2)
		c.Spec.Windows = test.change
		if got, users := usersWindows(c, m); users != test.users || users && !equal(got, test.own) {
			t.Errorf("%s: %v, %v", name, got, users)
		}
	}
}

// TestKeep: a user's windows are in the status before the Migration is gone, so that whichever process makes the next
// plan knows them, and only until there is the next Migration. Windows in a Migration of an earlier release, which does
// not say what it got, are not a user's.
func TestKeep(t *testing.T) {
	day := []v1alpha1.Window{{From: "09:00", To: "17:00", TimeZone: "UTC"}}
	night := []v1alpha1.Window{{From: "22:00", To: "05:00", TimeZone: "UTC"}}
	c, m := change("a", 2), made("a", 1, "")
	origin := func(o v1alpha1.ChangeOrigin) {
		text, _ := json.Marshal(o)
		m.Annotations[v1alpha1.AnnotationChange] = string(text)
	}
	c.Spec.Windows, m.Spec.Windows = night, day
	origin(v1alpha1.ChangeOrigin{Name: "a", UID: "uid-a", Windows: true, Given: night})
	kept := keep(c, m)
	if kept == nil || !equal(kept.Given, day) || !equal(kept.Of, night) {
		t.Errorf("not kept: %v", kept)
	}
	withdrawn := unplanned(v1alpha1.ReasonStale, "planning again")
	withdrawn.withdraws, withdrawn.windows = true, kept
	c.Status = withdrawn.status(c, nil, noon)
	c.Status = unplanned(v1alpha1.ReasonBlocked, "x").status(c, nil, noon) // as another process may write it
	if !alike(c.Status.Windows, kept) {
		t.Errorf("forgotten: %v", c.Status.Windows)
	}
	if next := of(c, m, nil).status(c, m, noon); next.Windows != nil {
		t.Errorf("the next Migration has them, and they are kept: %v", next.Windows)
	}
	m.Spec.Windows = night
	withdrawn.windows = keep(c, m)
	if next := withdrawn.status(c, nil, noon); next.Windows != nil {
		t.Errorf("the user took them back: %v", next.Windows)
	}
	m.Spec.Windows = day
	c.Spec.Windows = nil // of which the Migration of an earlier release knows nothing
	origin(v1alpha1.ChangeOrigin{Name: "a", UID: "uid-a", Windows: true})
	if kept := keep(c, m); kept != nil {
		t.Errorf("an earlier release: %v", kept)
	}
}
