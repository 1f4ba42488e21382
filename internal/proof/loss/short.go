package loss

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// MaxShort is the length of a short report at most, in bytes.
	MaxShort = 64 << 10
	// shortForm is the first byte of a short report.
	shortForm = 1
	// maxGrown bounds what a counter may have grown since the report in full, and how many ms have passed.
	maxGrown = 1 << 42
	// lastStep is how many ms the time of a path's last probe may be too early in a short report, so that the few
	// by which a prober wakes up too late are not written.
	lastStep = 10
)

// Shorten returns a short report: what was counted since an earlier report in full. It has the probes of each path, and
// the times, in milliseconds since those of the report in full. Round trips are not in it. It is not ok if
// anything else has changed: a probe was lost or leaked, a gap is open, a source was stalled, a process restarted, or
// the plan is another one. Such news need a report in full.
func Shorten(full, now *v1alpha1.ProbeReportStatus) (text string, ok bool) {
	if !onlyCounted(full, now) {
		return "", false
	}
	passed := now.At.Sub(full.At).Milliseconds()
	e := packer{data: binary.LittleEndian.AppendUint32(nil, checksum(full))}
	e.number(full.Seq)
	e.number(now.Seq - full.Seq)
	e.signed(passed)
	e.number(int64(len(full.Parts)))
	for i, part := range full.Parts {
		// rounded up, so that no prober is taken for gone before its last sign of life
		e.signed((now.Parts[i].At.Sub(part.At) + time.Millisecond - 1).Milliseconds() - passed)
	}
	e.number(int64(len(full.Paths)))
	for i, before := range full.Paths {
		e.signed(now.Paths[i].Sent - before.Sent - expected(before, passed))
	}
	for i, before := range full.Paths {
		silent := now.Paths[i].Answered == before.Answered && now.Paths[i].Sent > before.Sent
		e.number(int64(one(silent != (before.Answered == 0))))
	}
	for i, before := range full.Paths {
		after := now.Paths[i]
		steps := int64(0)
		if sent := after.Sent - before.Sent; sent > 0 {
			steps = floor(after.Last.Sub(before.Last).Milliseconds()-taken(before, sent)+lastStep/2, lastStep)
		}
		e.signed(steps)
	}
	text = deflate(shortForm, e.data)
	restored := *full
	if err := Restore(&restored, text); err != nil || restored.Seq != now.Seq || !grewTo(&restored, now) {
		return "", false // numbers beyond all bounds
	}
	return text, true
}

// Restore adds a short report to the report in full to which it belongs. If it cannot be read, or belongs to
// another one, the report is no evidence: its generation is that of no plan then. Results of paths that lost probes
// still count, and the absences of probers excuse none. The others are left out: they may be older than those that
// readers know of short reports, and a count that goes back looks like one that was lost. An agent removes its short
// report when it writes in full; one of an older version does not know of it, and so takes the sign of life of a
// prober in the former report in full for the last one.
//
// The results of the report in full are not changed.
func Restore(status *v1alpha1.ProbeReportStatus, text string) error {
	if text == "" {
		return nil
	}
	restored, err := restore(status, text)
	if err != nil {
		status.Generation = 0
		status.Paths = slices.DeleteFunc(slices.Clone(status.Paths), packable)
		status.Parts = slices.Clone(status.Parts)
		for i := range status.Parts {
			status.Parts[i].At, status.Parts[i].Gone = time.Time{}, nil
		}
		return fmt.Errorf("read its short report: %w", err)
	}
	*status = restored
	return nil
}

func restore(full *v1alpha1.ProbeReportStatus, text string) (v1alpha1.ProbeReportStatus, error) {
	status := *full
	data, err := inflate(shortForm, text, MaxShort)
	if err != nil {
		return status, err
	}
	if len(data) < 4 {
		return status, errDamaged
	}
	d := unpacker{data: data[4:]}
	if of := d.number(); !d.failed && of != full.Seq {
		return status, fmt.Errorf("it belongs to number %d, not %d, so an agent of another version wrote that", of,
			full.Seq)
	}
	if binary.LittleEndian.Uint32(data) != checksum(full) {
		return status, errors.New("it belongs to another report with the same number")
	}
	seqs, passed := d.number(), d.signed()
	if seqs < 1 || seqs > maxGrown || passed < -maxGrown || passed > maxGrown {
		d.fail()
	}
	status.Seq += seqs
	status.At = full.At.Add(time.Duration(passed) * time.Millisecond)
	status.Parts, status.Paths = slices.Clone(full.Parts), slices.Clone(full.Paths)
	if d.count() != int64(len(full.Parts)) {
		d.fail()
	}
	for i := range status.Parts {
		if after := d.signed(); !full.Parts[i].At.IsZero() {
			status.Parts[i].At = full.Parts[i].At.Add(time.Duration(after+passed) * time.Millisecond)
		}
	}
	if d.count() != int64(len(full.Paths)) {
		d.fail()
	}
	if d.failed {
		return *full, errDamaged
	}
	for i, before := range full.Paths {
		status.Paths[i].Sent += d.signed() + expected(before, passed)
	}
	for i, before := range full.Paths {
		if silent := d.number() != int64(one(before.Answered == 0)); !silent {
			status.Paths[i].Answered += status.Paths[i].Sent - before.Sent
		}
	}
	for i, before := range full.Paths {
		sent, steps := status.Paths[i].Sent-before.Sent, d.signed()
		took := int64(0)
		if sent > 0 {
			took = taken(before, sent) + steps*lastStep - lastStep/2
		}
		if sent < 0 || sent > maxGrown || took <= -lastStep || took > maxGrown || steps < -maxGrown ||
			steps > maxGrown || sent == 0 && steps != 0 || sent > 0 && before.Sent == 0 {
			d.fail()
		}
		took = max(took, 0)
		status.Paths[i].Last = before.Last.Add(time.Duration(took) * time.Millisecond)
	}
	if d.failed || len(d.data) > 0 {
		return *full, errDamaged
	}
	return status, nil
}

// onlyCounted reports whether nothing has happened between two reports but probes with the result that they had before.
func onlyCounted(full, now *v1alpha1.ProbeReportStatus) bool {
	if full.Generation != now.Generation || full.Seq >= now.Seq || !reflect.DeepEqual(full.BGP, now.BGP) {
		return false
	}
	for i := 1; i < len(full.Paths); i++ {
		if full.Paths[i-1].ID >= full.Paths[i].ID {
			return false // readers may have them in another order
		}
	}
	return slices.EqualFunc(full.Parts, now.Parts, func(a, b v1alpha1.Part) bool {
		return a.Name == b.Name && a.Pod == b.Pod && a.Since.Equal(b.Since) && a.At.IsZero() == b.At.IsZero() &&
			slices.EqualFunc(a.Gone, b.Gone, func(a, b v1alpha1.Absence) bool {
				return a.From.Equal(b.From) && a.To.Equal(b.To)
			})
	}) && slices.EqualFunc(full.Paths, now.Paths, func(a, b v1alpha1.PathResult) bool {
		sent, answered := b.Sent-a.Sent, b.Answered-a.Answered
		return a.ID == b.ID && a.Since.Equal(b.Since) && a.Open == nil && b.Open == nil && a.Dropped == b.Dropped &&
			a.Excused == b.Excused && slices.EqualFunc(a.Gaps, b.Gaps, sameGap) &&
			slices.EqualFunc(a.Stalls, b.Stalls, sameGap) && sent >= 0 && (answered == sent || answered == 0) &&
			(sent > 0 || a.Last.Equal(b.Last))
	})
}

func sameGap(a, b v1alpha1.Gap) bool {
	same := a.From.Equal(b.From)
	b.From = a.From
	return same && a == b
}

// grewTo reports whether a restored report has the counts of another one, and its times as near as it should. The last
// probe of a path is never later than it was.
func grewTo(restored, now *v1alpha1.ProbeReportStatus) bool {
	near := func(a, b time.Time) bool { return a.IsZero() == b.IsZero() && b.Sub(a).Abs() < time.Millisecond }
	return near(restored.At, now.At) && slices.EqualFunc(restored.Paths, now.Paths,
		func(a, b v1alpha1.PathResult) bool {
			return a.Sent == b.Sent && a.Answered == b.Answered && a.Last.IsZero() == b.Last.IsZero() &&
				!a.Last.After(b.Last) && b.Last.Sub(a.Last) < lastStep*time.Millisecond
		}) && slices.EqualFunc(restored.Parts, now.Parts, func(a, b v1alpha1.Part) bool { return near(a.At, b.At) })
}

// pace is the time between two probes of a path, as far as its result says; 0 if it does not.
func pace(r v1alpha1.PathResult) time.Duration {
	if r.Sent < 2 {
		return 0
	}
	return max(0, r.Last.Sub(r.Since)/time.Duration(r.Sent-1))
}

// expected is how many probes a path sends in so many ms if it goes on as before, and taken how many ms it takes for so
// many probes. A short report has the differences to these, which are mostly 0.
func expected(before v1alpha1.PathResult, passed int64) int64 {
	if every := pace(before); every > 0 && passed > 0 {
		return passed * int64(time.Millisecond) / int64(every)
	}
	return 0
}

func taken(before v1alpha1.PathResult, sent int64) int64 {
	return sent * int64(pace(before)) / int64(time.Millisecond)
}

// floor is a/b, rounded down.
func floor(a, b int64) int64 {
	if a < 0 {
		a -= b - 1
	}
	return a / b
}

// checksum tells reports in full apart that have the same number.
func checksum(full *v1alpha1.ProbeReportStatus) uint32 {
	e := packer{}
	e.time(full.At)
	for _, r := range full.Paths {
		e.data = append(e.data, r.ID...)
		e.time(r.Since)
		e.time(r.Last)
		e.number(r.Sent)
		e.number(r.Answered)
	}
	return crc32.ChecksumIEEE(e.data)
}
