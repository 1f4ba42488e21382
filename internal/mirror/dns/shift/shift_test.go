package shift_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

const origin = "example.org."

func move(i int, ttl uint32) zone.Move {
	name := fmt.Sprintf("s%d.%s", i, origin)
	a := func(address string) []zone.RRSet {
		return []zone.RRSet{{Name: name, Type: "A", TTL: ttl, Values: []string{address}}}
	}
	return zone.Move{Zone: origin, Services: []string{"Service a/b"},
		Unit: zone.Unit{Name: name, Before: a("192.0.2.1"), After: a("192.0.2.2")}}
}

// TestSteps plays any plan on a model of the zone: each transaction finds what it expects, and the end is what was
// asked for; played backwards, the beginning. Before a name moves its TTL is low, and no wait is shorter than the TTL
// that was there.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var moves []zone.Move
		for i := range rapid.IntRange(1, 40).Draw(t, "names") {
			moves = append(moves, move(i, rapid.SampledFrom([]uint32{10, 30, 300, 3600}).Draw(t, "ttl")))
		}
		z := &zone.Zone{Name: origin, Negative: rapid.SampledFrom([]uint32{5, 900}).Draw(t, "negative"),
			Can: zone.Can{Swap: true, Weights: rapid.Bool().Draw(t, "weights")}}
		o := shift.Options{First: rapid.IntRange(1, 9).Draw(t, "first"), Growth: rapid.IntRange(1, 4).Draw(t, "growth"),
			Batch: rapid.IntRange(1, 9).Draw(t, "batch"), Weights: []int64{1, 50}}
		p := shift.New([]*zone.Zone{z}, moves, o, "test", time.Unix(1, 0))
		has := map[string][]zone.RRSet{}
		for _, m := range moves {
			has[m.Name] = m.Before
		}
		var done []zone.Unit
		var longest, rested, settled uint32
		for _, m := range moves {
			longest = max(longest, m.Before[0].TTL)
		}
		for _, s := range p.Steps() {
			for _, a := range s.Actions {
				switch a.Verb() {
				case shift.Swap:
					var args shift.SwapArgs
					if err := json.Unmarshal(a.Args(), &args); err != nil {
						t.Fatal(err)
					}
					if len(args.Units) > o.Batch {
						t.Fatalf("%d names in one transaction", len(args.Units))
					}
					for _, u := range args.Units {
						if u.State(zone.CurrentOf(has[u.Name])) != zone.Before {
							t.Fatalf("step %s: %s", s.ID, u.Differs(zone.CurrentOf(has[u.Name])))
						}
						if s.Wave != "" && u.Before[0].TTL > p.Options.TTL {
							t.Fatalf("%s moves with a TTL of %d", u.Name, u.Before[0].TTL)
						}
						has[u.Name] = u.After
						done = append(done, u)
					}
				case shift.Rest:
					var args shift.RestArgs
					if err := json.Unmarshal(a.Args(), &args); err != nil {
						t.Fatal(err)
					}
					if s.ID == "lower" {
						rested = args.Seconds
					} else {
						settled = args.Seconds
					}
				}
			}
		}
		if longest > p.Options.TTL && rested != longest {
			t.Fatalf("waited %d s for a TTL of %d", rested, longest)
		}
		if settled < p.Options.TTL || settled < z.Negative {
			t.Fatalf("settled for %d s", settled)
		}
		for _, m := range moves {
			if !m.After[0].Equal(has[m.Name][0]) || len(has[m.Name]) != 1 {
				t.Fatalf("%s ends as %v", m.Name, has[m.Name])
			}
		}
		for _, u := range slices.Backward(done) {
			has[u.Name] = u.Before
		}
		for _, m := range moves {
			if !m.Before[0].Equal(has[m.Name][0]) {
				t.Fatalf("%s goes back to %v", m.Name, has[m.Name])
			}
		}
	})
}

// TestTooMuch holds the rule of 30 %.
func TestTooMuch(t *testing.T) {
	z := &zone.Zone{Name: origin}
	var moves []zone.Move
	for i := range 10 {
		z.Sets = append(z.Sets, move(i, 60).Before...)
		moves = append(moves, move(i, 60))
	}
	for n, want := range map[int]bool{1: false, 3: false, 4: true, 10: true} {
		if got := shift.TooMuch([]*zone.Zone{z}, moves[:n]); (got != "") != want {
			t.Errorf("%d of 10: %q", n, got)
		}
	}
	z.Sets = z.Sets[:9]
	if got := shift.TooMuch([]*zone.Zone{z}, moves[:9]); got != "" {
		t.Errorf("a small zone: %s", got)
	}
}

// TestPlan writes and reads a plan, refuses an edited one, and finds the same way back each time.
func TestPlan(t *testing.T) {
	p := shift.New([]*zone.Zone{{Name: origin, Negative: 60}}, []zone.Move{move(1, 60), move(2, 60)},
		shift.Options{}, "v1", time.Unix(1, 0))
	data, err := shift.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := shift.Read(data)
	if err != nil || again.Name != p.Name || again.Back().Hash != p.Back().Hash ||
		p.Back().Back().Moves[0].Before[0].Values[0] != "192.0.2.1" {
		t.Fatalf("%+v, %v", again, err)
	}
	for what, text := range map[string]string{
		"edited":    strings.Replace(string(data), "192.0.2.2", "192.0.2.9", 1),
		"other":     "kind: Plan\napiVersion: theseus.dev/v1alpha1",
		"empty":     "",
		"a field":   string(data) + "\nmore: yes\n",
		"no format": strings.Replace(string(data), "format: 2", "format: 1", 1),
	} {
		var refused *shift.Error
		if _, err := shift.Read([]byte(text)); err == nil || !asError(err, &refused) || refused.Hint() == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if book := shift.Runbook(p); !strings.Contains(book, "- s1.example.org. 60 A 192.0.2.1\n"+
		"  + s1.example.org. 60 A 192.0.2.2") || !strings.Contains(book, "lower the TTL") {
		t.Errorf("the runbook:\n%s", book)
	}
}

// TestPlanOfBefore: a plan of the release before signals goes on, and back, as it began; one with an error rate names
// the version that finishes it.
func TestPlanOfBefore(t *testing.T) {
	data, err := os.ReadFile("testdata/format2.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := shift.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if back := p.Back(); back.Check() != nil || back.Name != "dns-95faefc0-back-0695703c" ||
		back.Hash != "35d06f2a06eaf7e8c1e184d59d36d8364b118c81fdd6a8e7cfe85cde6742841b" {
		t.Errorf("the way back is another: %s %s", back.Name, back.Hash)
	}
	if steps, err := json.Marshal(p.Steps()); err != nil ||
		fmt.Sprintf("%x", sha256.Sum256(steps)) != "80cb2206b80b215ca5c98b45cfd7426302d8d60bd9eec58bea9b4bf441066463" {
		t.Errorf("its steps are others, %v: %s", err, steps)
	}
	if data, err = os.ReadFile("testdata/errorrate.yaml"); err != nil {
		t.Fatal(err)
	}
	var refused *shift.Error
	if _, err := shift.Read(data); err == nil || !asError(err, &refused) || !strings.Contains(refused.Error(),
		"uses an error rate") || !strings.Contains(refused.Hint(), "with theseus v1;") {
		t.Errorf("%v", err)
	}
}

// TestSignalsOfRollback: the gates of the way there ask the signals of a plan, and those of the way back do not.
func TestSignalsOfRollback(t *testing.T) {
	p := shift.New([]*zone.Zone{{Name: origin, Negative: 60}}, []zone.Move{move(1, 60)},
		shift.Options{SLO: []string{"http://p a < 1"}}, "v1", time.Unix(1, 0))
	if back := p.Back(); len(back.Options.SLO) != 0 || len(p.Options.SLO) != 1 || back.Check() != nil {
		t.Errorf("%q, and there %q", back.Options.SLO, p.Options.SLO)
	}
	if book := shift.Runbook(p); !strings.Contains(book, "The way back does not ask the signals") ||
		strings.Contains(shift.Runbook(p.Back()), "signal") {
		t.Errorf("the runbook:\n%s", book)
	}
}

func asError(err error, into **shift.Error) bool {
	found, ok := err.(*shift.Error)
	*into = found
	return ok
}

// FuzzRead demands that no input makes a reader panic, and that what is read can be carried out.
func FuzzRead(f *testing.F) {
	data, _ := shift.Write(shift.New([]*zone.Zone{{Name: origin}}, []zone.Move{move(1, 60)},
		shift.Options{}, "v1", time.Unix(1, 0)))
	f.Add(data)
	f.Add([]byte("zones: [null]"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if p, err := shift.Read(data); err == nil {
			p.Steps()
			p.Back().Steps()
		}
	})
}
