package probe

import (
	"encoding/binary"
	"time"
)

// A payload is 24 bytes and padding: a mark that distinguishes questions from answers, the run and path it belongs
// to, its number, and its send time on the sender's monotonic clock in nanoseconds since the run began.
const (
	headerSize = 24
	question   = "TSQ1"
	answer     = "TSA1"
)

// minSize and maxSize bound payloads in bytes.
const (
	minSize = headerSize
	maxSize = 65507
)

// Payload is one path's buffer, filled again for each probe.
type Payload struct {
	data []byte
	run  uint32
	base time.Time
}

// NewPayload makes a buffer of size bytes (at least a header).
func NewPayload(size int, run uint32, base time.Time) *Payload {
	p := &Payload{data: make([]byte, min(max(size, minSize), maxSize)), run: run, base: base}
	copy(p.data, question)
	binary.BigEndian.PutUint32(p.data[4:], run)
	return p
}

// Fill writes the number and send time of a probe and returns the bytes to send.
func (p *Payload) Fill(seq uint64, at time.Time) []byte {
	binary.BigEndian.PutUint64(p.data[8:], seq)
	binary.BigEndian.PutUint64(p.data[16:], uint64(at.Sub(p.base)))
	return p.data
}

// Seq reads the number of a probe from its answer; plain echo servers do not change the mark. Answers
// of another run or length are not this path's.
func (p *Payload) Seq(data []byte) (uint64, bool) {
	if len(data) != len(p.data) || binary.BigEndian.Uint32(data[4:]) != p.run {
		return 0, false
	}
	if mark := string(data[:4]); mark != answer && mark != question {
		return 0, false
	}
	return binary.BigEndian.Uint64(data[8:]), true
}

// isQuestion reports whether a datagram is a probe. Servers answer nothing else, so that two of them can
// never be made to answer each other forever.
func isQuestion(data []byte) bool {
	return len(data) >= headerSize && string(data[:4]) == question
}
