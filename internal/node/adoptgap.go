package node

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/theseus-cni/theseus/internal/adoption"
	"github.com/theseus-cni/theseus/internal/step"
)

// How a pod's own flows are measured.
const (
	gapInterval = time.Millisecond
	gapControl  = 200 * time.Millisecond // before the move
	gapAfter    = 50 * time.Millisecond  // for the last answers
)

// gapProbe sends datagrams from the pod's namespace to the node, which sends them back.
type gapProbe struct {
	pod, host *net.UDPConn
	sent      atomic.Int64
	stop      chan struct{}
	done      sync.WaitGroup

	mu       sync.Mutex
	received map[int64]bool
	last     time.Time
	longest  time.Duration
}

// startGap begins to measure; nil when the pod may not talk to its node or it does not answer.
func (h *hands) startGap(record *adoption.Record) (*gapProbe, time.Duration) {
	source := net.ParseIP(record.HostRoute.Source)
	if source == nil {
		return nil, 0
	}
	host, err := net.ListenUDP("udp4", &net.UDPAddr{IP: source})
	if err != nil {
		return nil, 0
	}
	p := &gapProbe{host: host, stop: make(chan struct{}), received: map[int64]bool{}}
	err = h.inside(record, func(in *space) error {
		return in.do(func() (err error) { // the socket stays in the namespace
			p.pod, err = net.DialUDP("udp4", nil, host.LocalAddr().(*net.UDPAddr))
			return err
		})
	})
	if err != nil {
		_ = host.Close()
		return nil, 0
	}
	p.done.Go(p.echo)
	p.done.Go(p.receive)
	p.done.Go(p.send)
	time.Sleep(gapControl)
	_, control := p.cut()
	if control == 0 { // nothing came back
		p.end()
		return nil, 0
	}
	return p, control
}

// cut returns what was counted since the last cut.
func (p *gapProbe) cut() (lost int, longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest = p.longest
	p.longest = 0
	return int(p.sent.Load()) - len(p.received), longest
}

// finish ends the measurement.
func (p *gapProbe) finish(control time.Duration) *step.AdoptGap {
	sent := int(p.sent.Load())
	deadline := time.Now().Add(gapAfter)
	for time.Now().Before(deadline) { // what was sent by now has its time to come back
		time.Sleep(gapInterval)
	}
	p.mu.Lock()
	lost := 0
	for seq := range int64(sent) {
		if !p.received[seq] {
			lost++
		}
	}
	longest := max(p.longest, time.Since(p.last)) // a silence that lasts counts too
	p.mu.Unlock()
	p.end()
	return &step.AdoptGap{Interval: step.Duration(gapInterval), Sent: sent, Lost: lost,
		Longest: step.Duration(longest), Control: step.Duration(control)}
}

func (p *gapProbe) end() {
	close(p.stop)
	_ = p.pod.Close()
	_ = p.host.Close()
	p.done.Wait()
}

func (p *gapProbe) send() {
	tick := time.NewTicker(gapInterval)
	defer tick.Stop()
	var data [8]byte
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
			binary.BigEndian.PutUint64(data[:], uint64(p.sent.Load()))
			_, _ = p.pod.Write(data[:]) // one that cannot be sent is one that is lost
			p.sent.Add(1)
		}
	}
}

func (p *gapProbe) echo() {
	var data [64]byte
	for {
		n, from, err := p.host.ReadFromUDP(data[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = p.host.WriteToUDP(data[:n], from)
		}
	}
}

func (p *gapProbe) receive() {
	var data [64]byte
	for {
		n, err := p.pod.Read(data[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != 8 {
			continue
		}
		now := time.Now()
		p.mu.Lock()
		p.received[int64(binary.BigEndian.Uint64(data[:]))] = true
		if !p.last.IsZero() {
			p.longest = max(p.longest, now.Sub(p.last))
		}
		p.last = now
		p.mu.Unlock()
	}
}
