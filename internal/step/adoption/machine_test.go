package adoption

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/theseus-cni/theseus/internal/step"
)

// model is a pod on two networks. Each of its parts is made of small changes, and the process may end before
// any of them.
type model struct {
	alive              bool
	old, new           bool   // the interfaces
	renamed, pinned    bool   // what holds the traffic
	host, pod          string // which interface carries each side
	programmed         bool
	fromHolds, toHolds bool
	disk               *Record
	changes, crashAt   int
	fail               string
	diesBeforeFlip     bool
	t                  *testing.T
}

type crash struct{}

func newModel(t *testing.T) *model {
	return &model{alive: true, old: true, host: "old", pod: "old", fromHolds: true, t: t}
}

// change is one small change; after each the pod must be able to talk.
func (m *model) change(do func()) {
	m.changes++
	if m.changes == m.crashAt {
		panic(crash{})
	}
	do()
	m.check()
}

func (m *model) check() {
	m.t.Helper()
	there := map[string]bool{"old": m.old, "new": m.new && m.programmed}
	if m.alive && (!there[m.host] || !there[m.pod]) {
		m.t.Fatalf("after change %d the host uses %s, the pod %s, and there is %v", m.changes, m.host, m.pod, there)
	}
}

func (m *model) failing(part string) error {
	if m.fail == part {
		return errors.New("it failed")
	}
	return nil
}

func (m *model) See(*Record) (Seen, error) {
	return Seen{Alive: m.alive, Old: m.old && m.alive, New: m.new && m.alive}, m.failing("see")
}

func (m *model) Save(r *Record) error {
	if m.fail == "save "+string(r.Phase) {
		return errors.New("the disk is full")
	}
	saved := *r
	m.change(func() { m.disk = &saved })
	return nil
}

func (m *model) Forget(r *Record) error {
	m.change(func() { m.disk = r.Before })
	return nil
}

func (m *model) Mark(*Record, string) {}

func (m *model) Pin(context.Context, *Record) error {
	m.change(func() { m.pinned = true })
	if err := m.failing("pin"); err != nil {
		return err
	}
	m.change(func() { m.renamed = true })
	return nil
}

func (m *model) Unpin(context.Context, *Record) error {
	if m.alive && !m.old {
		return errors.New("the old interface is gone")
	}
	m.change(func() { m.renamed = false })
	m.change(func() { m.pinned = false })
	return m.failing("unpin")
}

func (m *model) Add(_ context.Context, r *Record) error {
	if !m.renamed || !m.pinned {
		m.t.Fatal("the plugin is asked while nothing holds the traffic")
	}
	m.change(func() { m.toHolds = true })
	if err := m.failing("add"); err != nil {
		return err
	}
	m.change(func() { m.new = true })
	r.New.Index = 2
	return nil
}

func (m *model) Remove(_ context.Context, r *Record) error {
	if r.Phase == Pinning {
		return nil
	}
	if m.host == "new" || m.pod == "new" {
		m.t.Fatal("what carries traffic is removed")
	}
	m.change(func() { m.new, m.programmed = false, false })
	m.change(func() { m.toHolds = false })
	return m.failing("remove")
}

func (m *model) Wait(context.Context, *Record) error {
	if err := m.failing("wait"); err != nil {
		return err
	}
	m.change(func() { m.programmed = true })
	if m.diesBeforeFlip {
		m.die()
	}
	return nil
}

func (m *model) die() { m.alive, m.old, m.new = false, false, false }

func (m *model) Flip(context.Context, *Record) error {
	if !m.alive {
		return errors.New("it is gone")
	}
	m.change(func() { m.host = "new" })
	if err := m.failing("flip"); err != nil {
		return err
	}
	m.change(func() { m.pod = "new" })
	return nil
}

func (m *model) Unflip(_ context.Context, r *Record) error {
	if r.Phase != Flip || !m.alive {
		return nil
	}
	m.change(func() { m.pod = "old" })
	m.change(func() { m.host = "old" })
	return nil
}

func (m *model) Part(context.Context, *Record) error {
	if err := m.failing("part"); err != nil {
		return err
	}
	m.change(func() { m.old = false })
	m.change(func() { m.pinned, m.renamed = false, false })
	return nil
}

func (m *model) Release(_ context.Context, r *Record, side Side) error {
	if err := m.failing("release"); err != nil {
		return err
	}
	m.change(func() {
		if side.Network == "from" {
			m.fromHolds = false
		} else {
			m.toHolds = false
		}
	})
	return nil
}

// guarded calls and says whether the process ended.
func guarded(call func()) (crashed bool) {
	defer func() {
		if thrown := recover(); thrown != nil {
			if _, crashed = thrown.(crash); !crashed {
				panic(thrown)
			}
		}
	}()
	call()
	return false
}

func newRecord(release bool) *Record {
	return &Record{Sandbox: "s", From: Side{Network: "from"}, To: Side{Network: "to"}, Release: release}
}

// settled checks a pod that nobody works on any more.
func (m *model) settled() {
	m.t.Helper()
	m.check()
	switch {
	case m.pinned && m.alive || m.renamed && m.alive:
		m.t.Error("something is left of the move")
	case m.alive && m.old == m.new:
		m.t.Errorf("it has the old interface: %v, and the new one: %v", m.old, m.new)
	case m.alive && m.old && (m.toHolds || !m.fromHolds || m.disk != nil):
		m.t.Errorf("it is on the source, but %+v", *m)
	case m.alive && m.new && !m.toHolds:
		m.t.Error("it is on the target, which does not know")
	case !m.alive && (m.fromHolds || m.toHolds || m.disk != nil):
		m.t.Errorf("it is gone, but %+v", *m)
	}
}

// TestCrashEverywhere ends the process before every change of a move, and before every change of what the next
// process does about it, and lets a third one finish.
func TestCrashEverywhere(t *testing.T) {
	for _, release := range []bool{false, true} {
		for first := 1; ; first++ {
			reached := false
			for second := 1; ; second++ {
				m := newModel(t)
				m.crashAt = first
				if !guarded(func() { _, _ = Move(t.Context(), m, newRecord(release)) }) {
					break // the move has fewer changes
				}
				reached = true
				if m.disk == nil { // nothing was begun, or all was done
					m.settled()
					break
				}
				m.changes, m.crashAt = 0, second
				record := *m.disk
				again := guarded(func() { _, _ = Resume(t.Context(), m, &record) })
				m.changes, m.crashAt = 0, -1
				if again && m.disk != nil {
					record := *m.disk
					if state, err := Resume(t.Context(), m, &record); state == step.AdoptStuck {
						t.Fatalf("crash %d, then %d: %v", first, second, err)
					}
				}
				m.settled()
				if t.Failed() {
					t.Fatalf("release %v, crash before change %d, then before %d", release, first, second)
				}
				if !again {
					break
				}
			}
			if !reached {
				break
			}
		}
	}
}

func TestMove(t *testing.T) {
	for name, c := range map[string]struct {
		fail  string
		dies  bool
		state step.AdoptState
		on    string
	}{
		"all goes well":                   {state: step.AdoptMoved, on: "new"},
		"pin fails":                       {fail: "pin", state: step.AdoptUndone, on: "old"},
		"the plugin fails":                {fail: "add", state: step.AdoptUndone, on: "old"},
		"the agent does not program it":   {fail: "wait", state: step.AdoptUndone, on: "old"},
		"half a flip":                     {fail: "flip", state: step.AdoptUndone, on: "old"},
		"the disk is full at the start":   {fail: "save pinning", state: step.AdoptUndone, on: "old"},
		"the disk is full at the flip":    {fail: "save flip", state: step.AdoptUndone, on: "old"},
		"the disk is full after the flip": {fail: "save flipped", state: step.AdoptUndone, on: "old"},
		"parting fails":                   {fail: "part", state: step.AdoptStuck, on: "new"},
		"the pod dies":                    {dies: true, state: step.AdoptGone},
		"taking back fails":               {fail: "unpin", state: step.AdoptMoved, on: "new"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t)
			m.fail, m.diesBeforeFlip = c.fail, c.dies
			record := newRecord(false)
			state, err := Move(t.Context(), m, record)
			if state != c.state || (err == nil) != (state == step.AdoptMoved || state == step.AdoptGone) {
				t.Errorf("state %s, %v", state, err)
			}
			on := fmt.Sprintf("%s%s", map[bool]string{true: "old"}[m.old && m.host == "old"],
				map[bool]string{true: "new"}[m.new && m.host == "new"])
			if on != c.on {
				t.Errorf("it is on %q", on)
			}
			if state == step.AdoptStuck { // the next verb tries again
				m.fail = ""
				if state, err := Resume(t.Context(), m, m.disk); state != step.AdoptMoved {
					t.Errorf("then: %s, %v", state, err)
				}
			}
			m.settled()
		})
	}
}

// TestRecordBefore: a way back that fails leaves the record of the way there.
func TestRecordBefore(t *testing.T) {
	m := newModel(t)
	m.fail = "add"
	there := &Record{Sandbox: "s", Phase: Moved}
	record := newRecord(true)
	record.Before = there
	if state, _ := Move(t.Context(), m, record); state != step.AdoptUndone || m.disk != there {
		t.Errorf("state %s, on disk %+v", state, m.disk)
	}
}

func TestDecide(t *testing.T) {
	both, none := Seen{Alive: true, Old: true, New: true}, Seen{Alive: true}
	old, fresh, gone := Seen{Alive: true, Old: true}, Seen{Alive: true, New: true}, Seen{}
	for _, c := range []struct {
		phase Phase
		seen  Seen
		want  Course
	}{
		{Pinning, old, Back}, {Adding, old, Back}, {Adding, both, Back}, {Waiting, both, Back}, {Flip, both, Back},
		{Flip, none, Back}, {Flipped, both, Onward}, {Flipped, fresh, Onward},
		{Flipped, none, Onward}, {Flipped, old, Back}, {Moved, fresh, Finished}, {Moved, none, Finished},
		{Pinning, gone, Bury}, {Flip, gone, Bury}, {Flipped, gone, Bury}, {Moved, gone, Bury},
	} {
		if got := Decide(c.phase, c.seen); got != c.want {
			t.Errorf("Decide(%s, %+v) = %d, want %d", c.phase, c.seen, got, c.want)
		}
	}
}
