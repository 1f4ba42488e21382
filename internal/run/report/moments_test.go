package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestMoments: of a run that measures, gaps are next to marks and to what happened in the cluster, and are of the step
// in which others change it; the times in which nobody looked are told.
func TestMoments(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "prepare/probes"},
		{ID: "guard/change", Actions: []step.Action{{ID: "guard/change/1", Do: step.Await{}}}}}}
	at := func(minutes int) time.Time { return epoch.Add(time.Duration(minutes) * time.Minute) }
	records := []engine.Record{{Event: engine.Started, Data: []byte(`{}`)},
		{Event: engine.StepBegan, Step: "prepare/probes"}, {Event: engine.StepDone, Step: "prepare/probes"},
		{Event: engine.Paused, Result: engine.ResultMeasuring, Error: "measures"},
		{Event: engine.Marked, Data: []byte(`{"text":"node pool b"}`), By: "ann@laptop"}}
	for i := range records {
		records[i].Seq, records[i].At = i+1, at(i)
	}
	result := func(id string, seconds int) v1alpha1.PathResult {
		return v1alpha1.PathResult{ID: id, Sent: 9000, Answered: 8990, Since: at(1), Last: at(30),
			Gaps: []v1alpha1.Gap{{From: at(20).Add(time.Duration(seconds) * time.Second), Millis: 3000, Probes: 10}}}
	}
	in := Input{Plan: p, Records: records, At: at(30), Looks: []Span{{at(0), at(3)}, {at(30), at(30)}},
		Reports: []v1alpha1.ProbeReport{{Status: v1alpha1.ProbeReportStatus{
			Paths: []v1alpha1.PathResult{result("a/old>b/old/udp", 0), result("b/old>a/old/udp", 4)}}}},
		Events: []observe.Event{{At: at(19), Object: "node b", What: "is not Ready: gone"}}}
	m := Build(in)
	var got []string
	for _, one := range m.Moments {
		got = append(got, m.When(one)+" "+one.String())
	}
	want := "09:34:00 mark: node pool b (ann@laptop)\n09:49:00 node b is not Ready: gone\n" +
		"09:50:00 gap: 2 paths, 20 lost probes, longest 3 s from a/old to b/old"
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
	if m.Run.Outcome != Measuring || !m.Run.End.Equal(at(30)) || len(m.Gaps) != 2 ||
		m.Gaps[0].Step != "guard/change" || len(m.Run.Pauses) > 0 {
		t.Errorf("%+v, gaps %+v", m.Run, m.Gaps)
	}
	text := Text(m)
	if !strings.HasPrefix(text, "Measuring; until now 20 probes lost") || !strings.Contains(text,
		"timeline  09:49:00 node b is not Ready") || !strings.Contains(text, "read in 2 periods") {
		t.Error(text)
	}
	page, err := HTML(m)
	if err != nil || !bytes.Contains(page, []byte("What happened")) ||
		!bytes.Contains(page, []byte("node b is not Ready: gone")) {
		t.Errorf("the page: %v", err)
	}
	in.Looks, in.Events, in.Records = nil, nil, records[:4]
	if m := Build(in); m.Moments != nil {
		t.Errorf("without a look or a mark: %+v", m.Moments)
	}
}
