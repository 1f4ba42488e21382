package kind

import (
	"reflect"
	"testing"
)

// TestSections: a plan whose only section is one of its fields has that section. The verifier and the report take a
// plan without one for a change of networks.
func TestSections(t *testing.T) {
	of, sections := reflect.TypeFor[Plan](), 0
	for i := range of.NumField() {
		field := of.Field(i)
		if !field.Type.Implements(reflect.TypeFor[Section]()) {
			continue
		}
		sections++
		p := &Plan{}
		section := reflect.New(field.Type.Elem())
		reflect.ValueOf(p).Elem().Field(i).Set(section)
		if p.Section() != section.Interface() {
			t.Errorf("a plan with %s has the section %v: Plan.Section in plan.go lacks a case", field.Name, p.Section())
		}
	}
	if sections < 7 {
		t.Errorf("only %d fields are sections", sections)
	}
}
