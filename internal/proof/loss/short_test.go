package loss

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// shortened are reports as readers of short ones have them, and how many are short. Every tenth is in full, as are
// those with news.
func shortened(t testing.TB, reports []v1alpha1.ProbeReport) (all []v1alpha1.ProbeReport, short int) {
	t.Helper()
	var full, read v1alpha1.ProbeReport
	for i, report := range reports {
		text, ok := "", false
		if i%10 > 0 {
			text, ok = Shorten(&full.Status, &report.Status)
		}
		if !ok {
			full = report
			read, _ = written(t, report, true)
		}
		status := read.Status
		if err := Restore(&status, text); err != nil {
			t.Fatal(err)
		}
		if ok {
			short++
		}
		all = append(all, v1alpha1.ProbeReport{ObjectMeta: report.ObjectMeta, Status: status})
	}
	return all, short
}

// TestShortStream: one recorded stream, in full and in short reports, has the same verdict at every look, and the same
// account but for what short reports leave out: parts of milliseconds, and round trips.
func TestShortStream(t *testing.T) {
	for _, lossy := range []int{0, 5, packedPaths - 1} {
		for _, every := range []time.Duration{2 * time.Second, 250 * time.Millisecond} {
			t.Run(fmt.Sprint(lossy, " lossy, every ", every), func(t *testing.T) {
				paths, reports := streamEvery(rand.New(rand.NewPCG(1, uint64(lossy))), lossy, 60, every)
				short, many := shortened(t, reports)
				if (many > 0) != (every < time.Second && lossy < packedPaths-1) {
					t.Fatalf("%d of %d reports are short", many, len(reports))
				}
				limits := Limits{MaxLost: 20, Bake: 5 * time.Second}
				evidence := Evidence{Generations: map[string]int64{"node-1": 3}, Paths: paths}
				for from := range 3 {
					evidence.Asked = reports[from : from+1]
					whole := NewWatch(limits, evidence)
					evidence.Asked = short[from : from+1]
					brief := NewWatch(limits, evidence)
					waited := 0
					for i := from + 1; i < len(reports); i++ {
						x, y := whole.Look(reports[i:i+1]), brief.Look(short[i:i+1])
						if !reflect.DeepEqual(x, y) {
							t.Errorf("verdict at look %d: in full %+v, short %+v", i, x, y)
						}
						waited += one(x.Waiting)
					}
					if lossy == 0 && (waited == 0 || waited >= len(reports)-from-1) {
						t.Errorf("%d of %d looks wait", waited, len(reports))
					}
					before, last := reports[from:from+1], reports[from+1:]
					x := NewAccount(paths, before, last, 0)
					y := NewAccount(paths, short[from:from+1], short[from+1:], 0)
					for i := range x {
						x[i].Results, y[i].Results, x[i].reported, y[i].reported = nil, nil, nil, nil
					}
					if !reflect.DeepEqual(x, y) {
						t.Error("the accounts differ")
					}
				}
			})
		}
	}
}

// wellReports are two reports of a node on which nothing happens but probes.
func wellReports() (full, now v1alpha1.ProbeReportStatus) {
	at := start.Add(time.Minute)
	for i := range packedPaths {
		sent := int64(60 * (i%10 + 1))
		result := v1alpha1.PathResult{ID: fmt.Sprintf("node-1/old>node-2/new/udp-%02d", i), Sent: sent,
			Answered: sent, Since: start, Last: at.Add(-time.Duration(i) * time.Millisecond),
			RTTCounts: []int64{0, sent}}
		if i%9 == 8 {
			result.Answered = 0
		}
		if i == 7 {
			result.Answered, result.Gaps = sent-1, []v1alpha1.Gap{{From: start, Millis: 10, Probes: 1}}
		}
		full.Paths = append(full.Paths, result)
		result.Sent += sent / 60
		if i%9 != 8 {
			result.Answered += sent / 60
		}
		result.Last = result.Last.Add(time.Second + 1234)
		now.Paths = append(now.Paths, result)
	}
	for i, name := range []string{"agent", "host", "new"} {
		part := v1alpha1.Part{Name: name, Pod: "p", Since: start}
		if i > 0 {
			part.At = at
		}
		full.Parts = append(full.Parts, part)
		if i > 0 {
			part.At = at.Add(time.Second)
		}
		now.Parts = append(now.Parts, part)
	}
	full.Generation, full.Seq, full.At = 3, 70, at
	now.Generation, now.Seq, now.At = 3, 74, at.Add(time.Second+567)
	return full, now
}

// TestShorten: a short report has the counts and times of all paths in few bytes, and nothing that is wrong is short.
func TestShorten(t *testing.T) {
	full, now := wellReports()
	text, ok := Shorten(&full, &now)
	if !ok || len(text) > 120 {
		t.Fatalf("%v, %d bytes", ok, len(text))
	}
	t.Logf("%d bytes", len(text))
	read := full
	if err := Restore(&read, text); err != nil || read.Seq != 74 || !grewTo(&read, &now) ||
		!reflect.DeepEqual(read.Paths[7].Gaps, now.Paths[7].Gaps) {
		t.Errorf("%v: %+v", err, read)
	}
	if full.Paths[0].Sent == read.Paths[0].Sent || !full.Parts[1].At.Equal(start.Add(time.Minute)) {
		t.Error("the report in full was changed")
	}
	type (
		status = v1alpha1.ProbeReportStatus
		result = v1alpha1.PathResult
	)
	gap := v1alpha1.Gap{From: start}
	for name, change := range map[string]func(now *status, r *result){
		"a loss":             func(_ *status, r *result) { r.Answered-- },
		"a leak":             func(now *status, _ *result) { now.Paths[8].Answered = 1 },
		"a gap begins":       func(_ *status, r *result) { r.Open = &gap },
		"a gap":              func(_ *status, r *result) { r.Gaps = []v1alpha1.Gap{gap} },
		"another gap":        func(now *status, _ *result) { now.Paths[7].Gaps[0].Probes++ },
		"a dropped gap":      func(_ *status, r *result) { r.Dropped++ },
		"a late answer":      func(_ *status, r *result) { r.Excused++ },
		"a stall":            func(_ *status, r *result) { r.Stalls = []v1alpha1.Gap{gap} },
		"a count begins":     func(_ *status, r *result) { r.Since = r.Since.Add(1) },
		"fewer probes":       func(_ *status, r *result) { r.Sent, r.Answered = 1, 1 },
		"time goes back":     func(_ *status, r *result) { r.Last = start },
		"another path":       func(_ *status, r *result) { r.ID += "x" },
		"a path less":        func(now *status, _ *result) { now.Paths = now.Paths[1:] },
		"another plan":       func(now *status, _ *result) { now.Generation++ },
		"no new number":      func(now *status, _ *result) { now.Seq = 70 },
		"BGP":                func(now *status, _ *result) { now.BGP = &v1alpha1.BGP{} },
		"a prober restarts":  func(now *status, _ *result) { now.Parts[1].Since = now.At },
		"another pod":        func(now *status, _ *result) { now.Parts[1].Pod = "q" },
		"no prober":          func(now *status, _ *result) { now.Parts = now.Parts[1:] },
		"a prober has paths": func(now *status, _ *result) { now.Parts[0].At = now.At },
		"an absence": func(now *status, _ *result) {
			now.Parts[1].Gone = []v1alpha1.Absence{{From: start, To: now.At}}
		},
		"out of bounds": func(_ *status, r *result) {
			r.Sent, r.Answered = math.MaxInt64, math.MaxInt64
		},
	} {
		full, now := wellReports()
		now.Paths[7].Gaps = slices.Clone(now.Paths[7].Gaps)
		change(&now, &now.Paths[3])
		if _, ok := Shorten(&full, &now); ok {
			t.Errorf("%s: short", name)
		}
	}
	unsorted, now := wellReports()
	unsorted.Paths[0], unsorted.Paths[1] = unsorted.Paths[1], unsorted.Paths[0]
	now.Paths[0], now.Paths[1] = now.Paths[1], now.Paths[0]
	if _, ok := Shorten(&unsorted, &now); ok {
		t.Error("paths in another order than readers have them: short")
	}
}

// TestRestoreBad: what somebody else has written is an error and no evidence. A short report of another report in full
// is none at all.
func TestRestoreBad(t *testing.T) {
	full, now := wellReports()
	good, _ := Shorten(&full, &now)
	data, err := inflate(shortForm, good, MaxShort)
	if err != nil {
		t.Fatal(err)
	}
	head := func(numbers ...int64) string {
		e := packer{data: binary.LittleEndian.AppendUint32(nil, checksum(&full))}
		for _, n := range numbers {
			e.number(n)
		}
		return deflate(shortForm, e.data)
	}
	changed := slices.Clone(data)
	changed[0]++
	for name, text := range map[string]string{
		"no base64":        "{}",
		"other form":       deflate(2, data),
		"too long":         strings.Repeat("A", MaxShort+4),
		"a bomb":           deflate(shortForm, make([]byte, maxUnpacked+1)),
		"nothing":          deflate(shortForm, nil),
		"cut off":          deflate(shortForm, data[:len(data)-3]),
		"a number":         deflate(shortForm, data[:5]),
		"more":             deflate(shortForm, append(slices.Clone(data), 0)),
		"another checksum": deflate(shortForm, changed),
		"no new number":    head(70, 0, 0, 0),
		"a number of all":  head(70, math.MaxInt64, 0, 3),
		"parts":            head(70, 1, 0, 9),
		"paths":            head(70, 1, 0, 3, 0, 0, 0, 1),
		"negative counts": head(append([]int64{70, 1, 0, 3, 0, 0, 0, packedPaths},
			slices.Repeat([]int64{1}, 162)...)...),
		"huge counts": head(append([]int64{70, 1, 0, 3, 0, 0, 0, packedPaths},
			slices.Repeat([]int64{math.MaxInt64 - 1}, 162)...)...),
		"time without probes": head(append([]int64{70, 1, 0, 3, 0, 0, 0, packedPaths},
			append(make([]int64, 108), slices.Repeat([]int64{2}, 54)...)...)...),
	} {
		status := full
		if err := Restore(&status, text); err == nil || status.Generation != 0 || status.Seq != 70 ||
			len(full.Paths) != packedPaths || !reflect.DeepEqual(status.Paths, full.Paths[7:8]) {
			t.Errorf("%s: %v: generation %d, number %d", name, err, status.Generation, status.Seq)
		}
	}
}

// TestRestoreForged: somebody writes to a report in full while its short report is there. A gate that knows more of it
// from short reports waits for the agent to write again, and does not take a count that goes back for a restart.
func TestRestoreForged(t *testing.T) {
	full, now := wellReports()
	full.Paths, now.Paths = full.Paths[:5], now.Paths[:5]
	text, _ := Shorten(&full, &now)
	paths := make([]v1alpha1.Path, len(full.Paths))
	for i, result := range full.Paths {
		paths[i] = v1alpha1.Path{ID: result.ID, Source: v1alpha1.Endpoint{Node: "node-1", Network: "old"}}
	}
	report := func(status v1alpha1.ProbeReportStatus) []v1alpha1.ProbeReport {
		return []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: status}}
	}
	forged := full
	forged.Paths = append(slices.Clone(full.Paths), v1alpha1.PathResult{ID: "node-2/host>node-1/host", Sent: 9})
	if err := Restore(&forged, text); err == nil {
		t.Fatal("it belongs to a forged report")
	}
	watch := NewWatch(Limits{}, Evidence{Generations: map[string]int64{"node-1": 3}, Paths: paths, Asked: report(now)})
	if verdict := watch.Judge(report(forged)); verdict.Pass || !verdict.Waiting {
		t.Errorf("%+v", verdict)
	}
	whole := now
	whole.Seq, whole.At = now.Seq+2, now.At.Add(time.Minute)
	whole.Paths = slices.Clone(now.Paths)
	for i := range whole.Paths {
		whole.Paths[i].Sent++
		whole.Paths[i].Answered++
		whole.Paths[i].Last = whole.At
	}
	if verdict := watch.Judge(report(whole)); !verdict.Pass {
		t.Errorf("when the agent has written again: %+v", verdict)
	}
}

// TestRestoreOlder: an agent of an older version goes on from the last report in full, and leaves the short one as
// it is. So it says that a prober was gone while a short report has a sign of life of it. Its reports are no
// evidence; they excuse no loss, and lose none.
func TestRestoreOlder(t *testing.T) {
	full, now := wellReports()
	now.Parts[1].At = now.Parts[1].At.Add(1234)
	text, _ := Shorten(&full, &now)
	read := full
	if err := Restore(&read, text); err != nil || read.Parts[1].At.Before(now.Parts[1].At) {
		t.Fatalf("%v: a prober was there at %v, and is said to be at %v", err, now.Parts[1].At, read.Parts[1].At)
	}
	paths := make([]v1alpha1.Path, len(full.Paths))
	for i, result := range full.Paths {
		paths[i] = v1alpha1.Path{ID: result.ID, IntervalMillis: 100, Protocol: v1alpha1.UDP, Denied: i%9 == 8,
			Source: v1alpha1.Endpoint{Node: "node-1", Network: "old"},
			Target: v1alpha1.Endpoint{Node: "node-1", Network: full.Parts[1].Name}}
	}
	older := now
	older.Seq = full.Seq + 1
	older.At = now.At.Add(time.Second)
	older.Paths, older.Parts = slices.Clone(now.Paths), slices.Clone(now.Parts)
	for i := range older.Paths {
		older.Paths[i].Sent++
		if !paths[i].Denied {
			older.Paths[i].Answered++
		}
		older.Paths[i].Last = older.At
	}
	gap := v1alpha1.Gap{From: full.At.Add(time.Second / 2), Millis: 100, Probes: 1}
	older.Paths[3].Gaps, older.Paths[3].Answered = []v1alpha1.Gap{gap}, older.Paths[3].Sent-1
	older.Parts[1].Since = older.At
	older.Parts[1].Gone = []v1alpha1.Absence{{From: full.Parts[1].At, To: older.At}}

	report := func(status v1alpha1.ProbeReportStatus) []v1alpha1.ProbeReport {
		return []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: status}}
	}
	lost := func(status v1alpha1.ProbeReportStatus) (lost, excused int64) {
		for _, one := range NewAccount(paths, report(full), report(status), 0) {
			lost, excused = lost+one.Lost, excused+one.Excused
		}
		return lost, excused
	}
	if lost, excused := lost(older); lost != 0 || excused != 1 {
		t.Errorf("without a short report beside it, %d were lost and %d excused", lost, excused)
	}
	bare := older
	err := Restore(&older, text)
	if err == nil || !strings.Contains(err.Error(), "an agent of another version wrote that") {
		t.Errorf("%v", err)
	}
	if lost, excused := lost(older); lost != 1 || excused != 0 {
		t.Errorf("%d were lost, %d excused", lost, excused)
	}
	if len(bare.Parts[1].Gone) != 1 {
		t.Error("the report as it was read was changed")
	}
	older.Paths = now.Paths // without the loss
	older.Seq += 10
	verdict := Judge(Limits{}, Evidence{Generations: map[string]int64{"node-1": 3}, Paths: paths, Asked: report(full),
		Now: report(older)})
	if verdict.Pass || !verdict.Waiting {
		t.Errorf("%+v", verdict)
	}
}

// FuzzRestore: whatever a node reports, it is read within the bounds, or refused; counts never go back.
func FuzzRestore(f *testing.F) {
	full, now := wellReports()
	good, _ := Shorten(&full, &now)
	f.Add(good)
	f.Add("AQ==")
	data, _ := inflate(shortForm, good, MaxShort)
	f.Add(deflate(shortForm, data[:20]))
	f.Fuzz(func(t *testing.T, text string) {
		status := full
		if err := Restore(&status, text); err != nil {
			if status.Generation != 0 {
				t.Errorf("refused, and evidence: %+v", status)
			}
			return
		}
		for i, after := range status.Paths {
			if before := full.Paths[i]; after.Sent < before.Sent || after.Answered < before.Answered ||
				after.Last.Before(before.Last) || after.Answered > after.Sent {
				t.Errorf("%+v, then %+v", before, after)
			}
		}
	})
}

// BenchmarkShort: what a short report costs an agent, and a reader.
func BenchmarkShort(b *testing.B) {
	full, now := wellReports()
	text, _ := Shorten(&full, &now)
	b.Run("shorten", func(b *testing.B) {
		for b.Loop() {
			Shorten(&full, &now)
		}
	})
	b.Run("restore", func(b *testing.B) {
		for b.Loop() {
			status := full
			if err := Restore(&status, text); err != nil {
				b.Fatal(err)
			}
		}
	})
}
