// Package window says when the steps of a migration may begin: within its windows, and only if the step fits into what
// is left of one. The definition of windows belongs here, and what happens when clocks change. Callers give it the
// time.
package window

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // the images, and many machines, have no files of time zones

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/step"
)

// days are the names of the days, as time.Weekday counts them.
var days = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}

// Set are the windows of a migration. An empty set is always open.
type Set []window

// window is one window. from and to are minutes since midnight.
type window struct {
	days     [7]bool
	from, to int
	zone     *time.Location
}

// Span is a time from when windows are open until when they close. A window that opens as another closes continues it.
type Span struct{ From, Until time.Time }

// Of reads the windows of a migration. The error names the first one that is not valid, by its position from 1.
func Of(spec []v1alpha1.Window) (Set, error) {
	if len(spec) > v1alpha1.MaxWindows {
		return nil, fmt.Errorf("%d windows, and at most %d are allowed", len(spec), v1alpha1.MaxWindows)
	}
	var all Set
	for i, one := range spec {
		w, err := read(one)
		if err != nil {
			return nil, fmt.Errorf("window %d (%s): %w", i+1, Text(one), err)
		}
		all = append(all, w)
	}
	return all, nil
}

func read(spec v1alpha1.Window) (w window, err error) {
	for _, name := range spec.Days {
		day := slices.Index(days, name)
		if day < 0 {
			return w, fmt.Errorf("unknown day %q: days are Mon, Tue, Wed, Thu, Fri, Sat, Sun", name)
		}
		w.days[day] = true
	}
	if len(spec.Days) == 0 {
		w.days = [7]bool{true, true, true, true, true, true, true}
	}
	if w.from, err = minutes(spec.From); err == nil {
		w.to, err = minutes(spec.To)
	}
	switch {
	case err != nil:
		return w, err
	case w.from == 24*60:
		return w, errors.New("a window cannot open at 24:00; write 00:00 of the next day")
	case w.from == w.to:
		return w, errors.New("it opens and closes at the same time; a whole day is 00:00-24:00")
	case spec.TimeZone == "" || spec.TimeZone == "Local":
		return w, errors.New("it needs a time zone by its IANA name, such as Europe/Berlin or UTC")
	}
	if w.zone, err = time.LoadLocation(spec.TimeZone); err != nil {
		return w, fmt.Errorf("unknown time zone %q: IANA names are such as Europe/Berlin or UTC", spec.TimeZone)
	}
	return w, nil
}

var clock = regexp.MustCompile(`^(([01][0-9]|2[0-3]):([0-5][0-9])|24:00)$`)

func minutes(text string) (int, error) {
	if !clock.MatchString(text) {
		return 0, fmt.Errorf("%q is not a time: times are from 00:00 to 24:00, as HH:MM", text)
	}
	hour, _ := strconv.Atoi(text[:2])
	minute, _ := strconv.Atoi(text[3:])
	return 60*hour + minute, nil
}

// Parse reads a window as Text writes it: "Tue,Thu 22:00-05:00 Europe/Berlin". Days may be ranges, as Mon-Fri; without
// days, the window opens every day.
func Parse(text string) (v1alpha1.Window, error) {
	var spec v1alpha1.Window
	words := strings.Fields(text)
	if len(words) == 3 {
		listed, err := daysOf(words[0])
		if err != nil {
			return spec, fmt.Errorf("window %q: %w", text, err)
		}
		spec.Days, words = listed, words[1:]
	}
	from, to, ok := "", "", false
	if len(words) == 2 {
		from, to, ok = strings.Cut(words[0], "-")
	}
	if !ok {
		return spec, fmt.Errorf("window %q: it is not of the form 'DAYS HH:MM-HH:MM ZONE'", text)
	}
	spec.From, spec.To, spec.TimeZone = from, to, words[1]
	if _, err := read(spec); err != nil {
		return spec, fmt.Errorf("window %q: %w", text, err)
	}
	return spec, nil
}

// daysOf reads a list of days and ranges of days.
func daysOf(text string) ([]string, error) {
	var names []string
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		from, to := slices.Index(days, first), slices.Index(days, last)
		if from < 0 || to < 0 {
			return nil, fmt.Errorf("unknown day in %q: days are Mon, Tue, Wed, Thu, Fri, Sat, Sun", part)
		}
		for day := from; ; day = (day + 1) % 7 {
			if !slices.Contains(names, days[day]) {
				names = append(names, days[day])
			}
			if day == to {
				break
			}
		}
	}
	return names, nil
}

// Text is a window as Parse reads it.
func Text(spec v1alpha1.Window) string {
	text := spec.From + "-" + spec.To + " " + spec.TimeZone
	if len(spec.Days) > 0 {
		text = strings.Join(spec.Days, ",") + " " + text
	}
	return text
}

// Time is a moment as messages show it, by the clock of the zone that it is in.
func Time(t time.Time) string {
	text := t.Format("Mon 2006-01-02 15:04 MST")
	if name := t.Location().String(); name != "UTC" {
		text += " (" + name + ")"
	}
	return text
}

// ahead is how many days the spans cover: each window opens at least once in it.
const ahead = 8

// Spans are the times from now on in which windows are open, for about a week. The first one may have begun.
func (s Set) Spans(now time.Time) []Span {
	var all []Span
	for _, w := range s {
		year, month, day := now.In(w.zone).Date()
		for d := day - 2; d <= day+ahead; d++ {
			if !w.days[time.Date(year, month, d, 0, 0, 0, 0, time.UTC).Weekday()] {
				continue
			}
			closes := d
			if w.to <= w.from {
				closes++
			}
			one := Span{wall(year, month, d, w.from, w.zone), wall(year, month, closes, w.to, w.zone)}
			if one.Until.After(one.From) { // else the clock skips it
				all = append(all, one)
			}
		}
	}
	slices.SortFunc(all, func(a, b Span) int { return a.From.Compare(b.From) })
	var joined []Span
	for _, one := range all {
		if n := len(joined); n > 0 && !one.From.After(joined[n-1].Until) {
			if one.Until.After(joined[n-1].Until) {
				joined[n-1].Until = one.Until
			}
			continue
		}
		joined = append(joined, one)
	}
	return slices.DeleteFunc(joined, func(one Span) bool { return !one.Until.After(now) })
}

// wall is the first moment at which the clock of a zone shows a time of a day. If the clock skips that time, it is the
// moment of the jump. If the clock shows it twice, it is the first of both.
func wall(year int, month time.Month, day, minute int, zone *time.Location) time.Time {
	wanted := time.Date(year, month, day, 0, minute, 0, 0, time.UTC)
	shows := func(t time.Time) time.Time {
		_, offset := t.In(zone).Zone()
		return t.UTC().Add(time.Duration(offset) * time.Second)
	}
	t := time.Date(year, month, day, 0, minute, 0, 0, zone)
	start, end := t.ZoneBounds()
	switch {
	case shows(t).After(wanted):
		return start.In(zone)
	case shows(t).Before(wanted):
		return end.In(zone)
	case start.IsZero():
		return t
	}
	_, before := start.Add(-time.Second).Zone()
	_, after := t.Zone()
	if first := t.Add(time.Duration(after-before) * time.Second); first.Before(start) && shows(first).Equal(wanted) {
		return first
	}
	return t
}

// Admits says whether something that takes a while may begin now. until is when the windows that are open now close; it
// is zero if none is open, or if there are no windows. next is the first later span that is long enough; it is zero if
// there is none.
func (s Set) Admits(now time.Time, takes time.Duration) (ok bool, until time.Time, next Span) {
	if len(s) == 0 {
		return true, until, next
	}
	for i, one := range s.Spans(now) {
		if i == 0 && !one.From.After(now) {
			until = one.Until
			ok = until.Sub(now) >= takes
			continue
		}
		if one.Until.Sub(one.From) >= takes {
			return ok, until, one
		}
	}
	return ok, until, next
}

// Closed says why a step that takes a while must not begin now, and when it may; "" if it may. It is an error if it
// never may.
func (s Set) Closed(now time.Time, takes time.Duration) (string, error) {
	ok, until, next := s.Admits(now, takes)
	if ok {
		return "", nil
	}
	about := "about " + step.Duration(takes).About()
	if next.From.IsZero() {
		return "", fmt.Errorf("no window is long enough for the next step, which takes %s", about)
	}
	opens := "the next window opens " + Time(next.From)
	if _, _, first := s.Admits(now, 0); !first.From.Equal(next.From) {
		opens = "the next window that is long enough for the next step (" + about + ") opens " + Time(next.From)
	}
	if until.IsZero() {
		return "outside of its windows; " + opens, nil
	}
	return "the next step takes " + about + ", and the window closes " + Time(until) + "; " + opens, nil
}
