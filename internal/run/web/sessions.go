package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
)

// Sessions is the graph of Calico's BGP sessions: those that the cluster's objects ask for, in the state that the nodes
// report.
type Sessions struct {
	// Text says why there are no pictures, or why they show no states, or may lack sessions; empty if none of these.
	Text string `json:"text,omitempty"`
	// Pictures has one for each address family.
	Pictures []*draw.Picture `json:"pictures,omitempty"`
}

// sessions makes Sessions.
type sessions struct {
	in    *bgp.Input
	why   string // there are no pictures
	late  string // why what asks for sessions cannot be read again now
	live  []*draw.Live
	heard map[string]voice // by node

	shown *Sessions
	data  []byte // what viewers have
	drawn struct {
		over  bool
		fresh int // nodes
	}
	dirty bool
}

// voice is what a node said last of its sessions.
type voice struct {
	seq  int64
	by   time.Time // the node's clock
	seen bgp.Seen
	at   time.Time // when it last changed, by the clock of this machine; zero if it has not since it was first read
}

// Graph takes what asks for BGP sessions, or why that is not known.
func (b *Board) Graph(in *bgp.Input, why string) {
	s := &b.bgp
	if s.late == "" && s.why == why && reflect.DeepEqual(s.in, in) && s.shown != nil {
		return
	}
	s.in, s.why, s.late, s.live, s.dirty = in, why, "", nil, true
	if in == nil {
		return
	}
	for i, family := range []string{"IPv4", "IPv6"} {
		if !in.Speaks(i == 1) {
			continue
		}
		g := bgp.Build(in, i == 1)
		if g == nil {
			s.live, s.why = nil, fmt.Sprintf("The BGP graph is not known: the BGPPeers make more than %d peerings.",
				bgp.MaxPeerings)
			return
		}
		s.live = append(s.live, draw.NewLive(family, g))
	}
	if s.live == nil {
		s.why = "The BGP graph is not known: no node has an address."
	}
}

// KeepGraph says why what asks for BGP sessions cannot be read again now. What was read last stays.
func (b *Board) KeepGraph(why string) { b.bgp.late, b.bgp.dirty = why, true }

// Hear takes the newest reports of all nodes, at a time of this machine's clock. The first one of a node may be old.
func (b *Board) Hear(reports []v1alpha1.ProbeReport, at time.Time) {
	s := &b.bgp
	before := s.heard
	s.heard, s.dirty = map[string]voice{}, true
	for i := range reports {
		status := &reports[i].Status
		if len(status.Paths) == 0 {
			continue // it measures nothing
		}
		one, known := before[reports[i].Name]
		if changed := !known || one.seq != status.Seq || !one.by.Equal(status.At); changed {
			one.seq, one.by, one.seen = status.Seq, status.At, bgp.Reported(status.BGP)
			if known {
				one.at = at
			}
		}
		s.heard[reports[i].Name] = one
	}
	s.show(b.state.Over(), b.measures, at)
}

// show is what is known at a time of this machine's clock; nil as long as nothing asks for sessions.
func (s *sessions) show(over bool, recent time.Duration, at time.Time) *Sessions {
	if s.live == nil && s.why == "" && s.late == "" {
		return nil
	}
	seen := map[string]bgp.Seen{}
	for name, one := range s.heard {
		if !over && !one.at.IsZero() && at.Sub(one.at) < recent {
			seen[name] = one.seen
		}
	}
	if !s.dirty && s.drawn.over == over && s.drawn.fresh == len(seen) {
		return s.shown
	}
	s.dirty, s.drawn.over, s.drawn.fresh = false, over, len(seen)
	next := &Sessions{Text: s.why}
	switch {
	case s.why != "":
	case over:
		next.Text = "The run has ended: no agent reports its sessions any more."
	case s.late != "":
		next.Text = "The objects that configure BGP sessions cannot be read now, and may have changed: " + s.late + "."
	}
	for _, one := range s.live {
		next.Pictures = append(next.Pictures, one.Picture(seen))
	}
	if data, err := json.Marshal(next); err != nil || s.shown == nil || !bytes.Equal(data, s.data) {
		s.shown, s.data = next, data
	}
	return s.shown
}
