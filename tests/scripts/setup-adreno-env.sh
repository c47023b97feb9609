#!/usr/bin/env bash
# The three ends of tuning on a phone, as the guide of Adreno GPUs starts them; it may be sourced:
#   source tests/scripts/setup-adreno-env.sh -e tracker -p 9190
#   source tests/scripts/setup-adreno-env.sh -e device -p 9190 -d abcdefgh
#   source tests/scripts/setup-adreno-env.sh -e query -p 9190
armillary_adreno() {
  local OPTIND=1 option what="" port=9190 device=""
  while getopts "e:p:d:h" option; do
    case $option in
      e) what=$OPTARG ;;
      p) port=$OPTARG ;;
      d) device=$OPTARG ;;
      *) what=help ;;
    esac
  done
  case $what in
    tracker) armc android tracker --port "$port" ;;
    query) armc android query --port "$port" ;;
    device)
      [ -n "$device" ] || { echo "setup-adreno-env.sh: -d wants the phone's serial number; 'adb devices' lists them" >&2; return 2; }
      armc android device --port "$port" --serial "$device" --key android --server "${ARMRPC:-build-adreno-target/armrpc}" ;;
    *) echo "usage: setup-adreno-env.sh -e tracker|device|query [-p PORT] [-d SERIAL]" >&2; return 2 ;;
  esac
}
armillary_adreno "$@"
