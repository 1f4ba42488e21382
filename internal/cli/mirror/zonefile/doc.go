// Package zonefile reads the file that says how to reach DNS zones, and the names in those zones.
package zonefile
