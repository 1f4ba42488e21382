package felix

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Check returns an error if Felix would not accept a text from the environment or from a file. It returns nil if Felix
// would, or if that can only be determined on the node (a file that must exist).
func (p Parameter) Check(text string) error {
	if strings.EqualFold(text, "none") {
		return nil // the zero value, for every parameter
	}
	schema := p.Schema
	switch {
	case strings.HasPrefix(schema, "Boolean"):
		return oneOf(text, []string{"true", "1", "yes", "y", "t", "false", "0", "no", "n", "f"})
	case strings.HasPrefix(schema, "One of: "):
		return oneOf(text, quoted(schema))
	case strings.HasPrefix(schema, "Integer"):
		return integer(schema, text)
	case strings.HasPrefix(schema, "Seconds"), strings.HasPrefix(schema, "Milliseconds"):
		_, err := strconv.ParseFloat(text, 64)
		return wrong(err == nil, "a number such as 90 or 0.5")
	case strings.HasPrefix(schema, "String matching regex `"):
		expression := strings.TrimSuffix(strings.TrimPrefix(schema, "String matching regex `"), "`")
		matched, err := regexp.MatchString(expression, text)
		return wrong(matched || err != nil, "text that matches "+expression)
	case schema == "Regular expression":
		_, err := regexp.Compile(text)
		return err
	case strings.HasPrefix(schema, "32-bit bitmask"):
		mask, err := strconv.ParseUint(text, 0, 32)
		return wrong(err == nil && bits.OnesCount64(mask) >= 2, "32 bits with at least two set, such as 0xffff0000")
	}
	return checkList(schema, text)
}

// checkList checks addresses, ports, and lists of such.
func checkList(schema, text string) error {
	switch {
	case schema == "IPv4 address", schema == "IPv6 address":
		address, err := netip.ParseAddr(text)
		return wrong(err == nil && address.Is4() == (schema == "IPv4 address"), "an "+schema)
	case schema == "Comma-delimited list of CIDRs":
		return each(text, func(one string) error {
			_, err := netip.ParsePrefix(one)
			if _, single := netip.ParseAddr(one); single == nil {
				err = nil
			}
			return wrong(err == nil, "ranges such as 10.0.0.0/8")
		})
	case strings.HasPrefix(schema, "Port range"):
		return portRange(text)
	case strings.HasPrefix(schema, "List of port ranges"):
		return each(text, portRange)
	case strings.HasPrefix(schema, "Comma-delimited list of numeric ports"):
		return each(text, protocolPort)
	case schema == "Comma-delimited list of key=value pairs":
		return each(text, func(one string) error { return wrong(strings.Contains(one, "="), "key=value pairs") })
	}
	return nil
}

// CheckField returns an error if Felix would not accept the value of a field of a FelixConfiguration, as YAML decodes
// it.
func (p Parameter) CheckField(value any) error {
	if _, timed := value.(string); timed && strings.Contains(p.Schema, "econds (floating point)") {
		_, err := time.ParseDuration(value.(string))
		return wrong(err == nil, "a duration such as 1m30s")
	}
	if text, ok := Text(value); ok && text != "" {
		return p.Check(text)
	}
	return nil
}

// Text converts a field's value into the form that an environment variable has; not ok if there is no such form.
func Text(value any) (text string, ok bool) {
	switch value := value.(type) {
	case string:
		return value, true
	case bool, int64, float64:
		return fmt.Sprint(value), true
	case []any:
		var texts []string
		for _, one := range value {
			text, ok := one.(string)
			if !ok {
				return "", false
			}
			texts = append(texts, text)
		}
		return strings.Join(texts, ","), true
	}
	return "", false
}

func wrong(fine bool, wanted string) error {
	if fine {
		return nil
	}
	return errors.New("it must be " + wanted)
}

func oneOf(text string, options []string) error {
	for _, option := range options {
		if strings.EqualFold(text, option) {
			return nil
		}
	}
	return wrong(false, "one of "+strings.Join(options, ", "))
}

// quoted returns the words between backquotes.
func quoted(schema string) []string {
	var words []string
	for i, part := range strings.Split(schema, "`") {
		if i%2 == 1 {
			words = append(words, part)
		}
	}
	return words
}

var interval = regexp.MustCompile(`\[(-?\d+),(-?\d+|2\^63-1)\]`)

// integer checks against a schema "Integer", or "Integer: [0,65535], [70000,2^63-1]".
func integer(schema, text string) error {
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		return wrong(false, "an integer")
	}
	ranges := interval.FindAllStringSubmatch(schema, -1)
	for _, r := range ranges {
		low, _ := strconv.ParseInt(r[1], 10, 64)
		high, err := strconv.ParseInt(r[2], 10, 64)
		if err != nil {
			high = math.MaxInt64
		}
		if n >= low && n <= high {
			return nil
		}
	}
	return wrong(len(ranges) == 0, "in the range "+strings.TrimPrefix(schema, "Integer: "))
}

// each checks the elements of a list; it skips empty elements.
func each(text string, check func(string) error) error {
	for _, one := range strings.Split(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		if err := check(one); err != nil {
			return fmt.Errorf("%q: %w", one, err)
		}
	}
	return nil
}

func portRange(text string) error {
	low, high, two := strings.Cut(text, ":")
	from, err := strconv.ParseUint(low, 10, 16)
	to := from
	if err == nil && two {
		to, err = strconv.ParseUint(high, 10, 16)
	}
	return wrong(err == nil && from <= to, "a port or a range such as 30000:32767")
}

// protocolPort accepts tcp:10.0.0.0/8:22, udp:[fd00::/8]:53, tcp:22 and 22.
func protocolPort(text string) error {
	const wanted = "ports such as tcp:22 or udp:10.0.0.0/8:53"
	at := strings.LastIndexByte(text, ':')
	if _, err := strconv.ParseUint(text[at+1:], 10, 16); err != nil {
		return wrong(false, wanted)
	}
	if at < 0 {
		return nil
	}
	protocol, network, some := strings.Cut(text[:at], ":")
	if !strings.EqualFold(protocol, "tcp") && !strings.EqualFold(protocol, "udp") {
		return wrong(false, wanted)
	}
	if !some {
		return nil
	}
	network = strings.Trim(network, "[]")
	_, notPrefix := netip.ParsePrefix(network)
	_, notAddress := netip.ParseAddr(network)
	return wrong(notPrefix == nil || notAddress == nil, wanted)
}
