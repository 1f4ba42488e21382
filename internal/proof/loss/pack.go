package loss

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// The bounds of packed results.
const (
	// MaxPacked is the length of ProbeReportStatus.Packed at most, and maxUnpacked what it may expand to, in bytes.
	MaxPacked, maxUnpacked = 128 << 10, 256 << 10
	// maxResults is how many paths there may be, and maxID how long an id may be. An id may repeat the one before in a
	// few bytes.
	maxResults, maxID = 4096, 1024
	// packedForm is the first byte of packed results. Another form would have another one.
	packedForm = 1
)

// Pack moves the results of paths without losses from Paths to Packed, in about a fifth of the bytes. Results of paths
// with a gap stay in full. Unpack restores exactly what Pack was given; what it could not restore stays in full too.
// Pack is called last, with the Seq of the report.
func Pack(status *v1alpha1.ProbeReportStatus) {
	whole := []v1alpha1.PathResult{}
	var well []v1alpha1.PathResult
	for _, result := range status.Paths {
		if packable(result) {
			well = append(well, utc(result))
		} else {
			whole = append(whole, result)
		}
	}
	if len(well) == 0 {
		return
	}
	text := deflate(packedForm, encodeResults(status.Seq, well))
	seq, restored, err := parsePacked(text)
	if err != nil || seq != status.Seq || !reflect.DeepEqual(restored, well) {
		return
	}
	status.Packed, status.Paths = text, whole
}

// Unpack is the opposite of Pack, for readers of reports. Packed results of another Seq are left out: an agent that
// does not pack leaves those of the agent before in the report. If they cannot be read, the report is no evidence: its
// generation is that of no plan then. Losses in it still count.
func Unpack(status *v1alpha1.ProbeReportStatus) error {
	text := status.Packed
	status.Packed = ""
	if text == "" {
		return nil
	}
	seq, results, err := parsePacked(text)
	if err != nil {
		status.Generation = 0
		return fmt.Errorf("read its packed results: %w", err)
	}
	if seq != status.Seq {
		return nil
	}
	status.Paths = append(results, status.Paths...)
	slices.SortStableFunc(status.Paths, func(a, b v1alpha1.PathResult) int { return strings.Compare(a.ID, b.ID) })
	return nil
}

// packable reports whether nothing is wrong with a path, and no probe was.
func packable(r v1alpha1.PathResult) bool {
	return len(r.Gaps) == 0 && r.Open == nil && r.Dropped == 0 &&
		!slices.ContainsFunc(r.Stalls, func(stall v1alpha1.Gap) bool {
			return stall.Cause != "" || stall.Second != v1alpha1.Second{}
		})
}

// utc is a result as Unpack returns it.
func utc(r v1alpha1.PathResult) v1alpha1.PathResult {
	r.Since, r.Last, r.Gaps = r.Since.UTC().Round(0), r.Last.UTC().Round(0), nil
	r.RTTCounts = append([]int64(nil), r.RTTCounts...)
	r.Stalls = append([]v1alpha1.Gap(nil), r.Stalls...)
	for i := range r.Stalls {
		r.Stalls[i].From = r.Stalls[i].From.UTC().Round(0)
	}
	return r
}

var deflaters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.DefaultCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	return w
}}

// deflate compresses data after a byte that says its form.
func deflate(form byte, data []byte) string {
	text := bytes.NewBuffer([]byte{form})
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(text)
	_, err := w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		panic(err) // a buffer takes everything
	}
	return base64.StdEncoding.EncodeToString(text.Bytes())
}

// encodeResults writes the results column by column, since equal things are then next to each other. Numbers are
// varints. Times, and the ids of paths, are differences to the one before.
func encodeResults(seq int64, results []v1alpha1.PathResult) []byte {
	e := packer{}
	e.number(seq)
	e.number(int64(len(results)))
	before := ""
	for _, r := range results {
		same := 0
		for same < min(len(before), len(r.ID)) && before[same] == r.ID[same] {
			same++
		}
		e.number(int64(same))
		e.number(int64(len(r.ID) - same))
		e.data, before = append(e.data, r.ID[same:]...), r.ID
	}
	for _, r := range results {
		e.number(r.Sent)
		e.number(r.Sent - r.Answered)
		e.number(r.Excused)
	}
	for _, r := range results {
		e.time(r.Since)
	}
	for _, r := range results {
		e.time(r.Last)
	}
	for _, r := range results {
		for _, micros := range r.RTTMicros {
			e.number(micros)
		}
	}
	for _, r := range results {
		e.number(int64(len(r.RTTCounts)))
		for _, n := range r.RTTCounts {
			e.number(n)
		}
	}
	for _, r := range results {
		e.number(int64(len(r.Stalls)))
		for _, stall := range r.Stalls {
			e.time(stall.From)
			e.millis(stall.Millis)
			e.number(stall.Probes)
		}
	}
	return e.data
}

// packer appends values.
type packer struct {
	data []byte
	last int64 // the time before, in Unix ns
}

func (e *packer) number(n int64) { e.data = binary.AppendUvarint(e.data, uint64(n)) }

// time appends a time. Zero is 0, since most packages cannot tell the zero time in ns.
func (e *packer) time(t time.Time) {
	if t.IsZero() {
		e.number(0)
		return
	}
	ns := t.UnixNano()
	step := ns - e.last
	e.number(step<<1 ^ step>>63 + 1) // small differences of either sign are small numbers
	e.last = ns
}

// signed appends a number that is small whatever its sign is.
func (e *packer) signed(n int64) { e.number(n<<1 ^ n>>63) }

// millis appends milliseconds: whole nanoseconds, or else the bits of the number.
func (e *packer) millis(value float64) {
	if ns := math.Round(value * float64(time.Millisecond)); ns >= 0 && ns < 1<<52 &&
		math.Float64bits(millis(time.Duration(ns))) == math.Float64bits(value) {
		e.number(int64(ns) << 1)
		return
	}
	e.number(1)
	e.data = binary.LittleEndian.AppendUint64(e.data, math.Float64bits(value))
}

// parsePacked reads packed results, and the number of the report that they are of.
func parsePacked(text string) (seq int64, results []v1alpha1.PathResult, err error) {
	data, err := inflate(packedForm, text, MaxPacked)
	if err != nil {
		return 0, nil, err
	}
	d := unpacker{data: data}
	seq, results = d.results()
	if d.failed || len(d.data) > 0 {
		return 0, nil, errDamaged
	}
	return seq, results, nil
}

var errDamaged = errors.New("they are cut off or damaged")

// inflate is the opposite of deflate, within bounds.
func inflate(form byte, text string, most int) ([]byte, error) {
	if len(text) > most {
		return nil, fmt.Errorf("they have more than %d bytes", most)
	}
	packed, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	if len(packed) == 0 || packed[0] != form {
		return nil, errors.New("another version of the agent wrote them")
	}
	var data bytes.Buffer
	in := io.LimitReader(flate.NewReader(bytes.NewReader(packed[1:])), maxUnpacked+1)
	if size, err := data.ReadFrom(in); err != nil {
		return nil, err
	} else if size > maxUnpacked {
		return nil, fmt.Errorf("they expand to more than %d bytes", maxUnpacked)
	}
	return data.Bytes(), nil
}

// unpacker reads what a packer has written. After a failure, all values are zero.
type unpacker struct {
	data   []byte
	last   int64
	failed bool
}

func (d *unpacker) results() (seq int64, results []v1alpha1.PathResult) {
	seq = d.number()
	n := d.count()
	if n > maxResults {
		d.fail()
		return 0, nil
	}
	results = make([]v1alpha1.PathResult, n)
	before := ""
	for i := range results {
		same, more := d.number(), d.count()
		if same < 0 || same > int64(len(before)) || same+more > maxID {
			d.fail()
		}
		if d.failed {
			return 0, nil
		}
		results[i].ID = before[:same] + string(d.data[:more])
		d.data, before = d.data[more:], results[i].ID
	}
	for i := range results {
		r := &results[i]
		r.Sent = d.number()
		r.Answered = r.Sent - d.number()
		r.Excused = d.number()
	}
	for i := range results {
		results[i].Since = d.time()
	}
	for i := range results {
		results[i].Last = d.time()
	}
	for i := range results {
		for j := range results[i].RTTMicros {
			results[i].RTTMicros[j] = d.number()
		}
	}
	for i := range results {
		for range d.count() {
			results[i].RTTCounts = append(results[i].RTTCounts, d.number())
		}
	}
	for i := range results {
		for range d.count() {
			results[i].Stalls = append(results[i].Stalls,
				v1alpha1.Gap{From: d.time(), Millis: d.millis(), Probes: d.number()})
		}
	}
	return seq, results
}

func (d *unpacker) fail() { d.data, d.failed = nil, true }

func (d *unpacker) number() int64 {
	n, size := binary.Uvarint(d.data)
	if size <= 0 {
		d.fail()
		return 0
	}
	d.data = d.data[size:]
	return int64(n)
}

func (d *unpacker) signed() int64 {
	n := uint64(d.number())
	return int64(n>>1) ^ -int64(n&1)
}

// count reads how many values follow. Each has at least one byte, so that no number makes the reader allocate more
// than it was given.
func (d *unpacker) count() int64 {
	n := d.number()
	if n < 0 || n > int64(len(d.data)) {
		d.fail()
		return 0
	}
	return n
}

func (d *unpacker) time() time.Time {
	n := uint64(d.number())
	if n == 0 {
		return time.Time{}
	}
	n--
	d.last += int64(n>>1) ^ -int64(n&1)
	return time.Unix(0, d.last).UTC()
}

func (d *unpacker) millis() float64 {
	n := d.number()
	switch {
	case n&1 == 0:
		return millis(time.Duration(n >> 1))
	case len(d.data) < 8:
		d.fail()
		return 0
	}
	bits := binary.LittleEndian.Uint64(d.data)
	d.data = d.data[8:]
	return math.Float64frombits(bits)
}
