// Package zonefile reads the file that says how DNS zones are reached, and the names in those zones.
package zonefile
