/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transcript-fixture.h"

/* The JSON of recognisers. */
typedef struct {
  const char *name;
  const char *json;
  const char *expected;
} JsonCase;

static const JsonCase json_cases[] = {
  { "whisper",
      "{\"text\": \" Hello there. Bye.\", \"segments\": [{\"id\": 0, \"seek\": 0, \"start\": 0.0, "
      "\"end\": 1.5, \"text\": \" Hello there.\", \"tokens\": [50364, 2425], \"temperature\": "
      "0.0}, "
      "{\"start\": 2, \"end\": 3, \"text\": \" Bye.\"}], \"language\": \"en\"}",
      "0.000-1.500 |Hello there.\n2.000-3.000 |Bye.\n" },
  { "whisper-words",
      "{\"segments\": [{\"start\": 0.0, \"end\": 1.5, \"text\": \" Hello there.\", \"words\": "
      "[{\"word\": "
      "\" Hello\", \"start\": 0.0, \"end\": 0.5, \"probability\": 0.9}, {\"word\": \" there.\", "
      "\"start\": 0.5, \"end\": 1.5}]}], \"word_segments\": [{\"word\": \"Hello\", \"start\": 0.0, "
      "\"end\": 0.5, \"speaker\": \"SPEAKER_00\"}]}",
      "0.000-1.500 |Hello there.\n" },
  { "words-before-text",
      "{\"segments\": [{\"words\": [{\"word\": \"Hello\", \"start\": 0.2, \"end\": 0.5}, "
      "{\"word\": "
      "\"there.\", \"start\": 0.5, \"end\": 1.5}], \"text\": \"Hello there.\"}]}",
      "0.200-1.500 |Hello there.\n" },
  { "segments-speakers",
      "[{\"speaker\": \"Ann\", \"text\": \"One.\", \"start\": 0.5, \"end\": 1.5}, {\"speaker\": 1, "
      "\"text\": \"Two.\", \"start\": 2.5, \"end\": 3.5}]",
      "0.500-1.500 Ann|Ann: One.\n2.500-3.500 Speaker 1|Speaker 1: Two.\n" },
  { "word-list",
      "[{\"word\": \"Good\", \"start\": 0.0, \"end\": 0.3}, {\"word\": \"morning.\", \"start\": "
      "0.3, "
      "\"end\": 0.8}, {\"word\": \"It\", \"start\": 0.9, \"end\": 1.0}, {\"word\": \"rains\", "
      "\"start\": 1.0, \"end\": 1.5}, {\"word\": \"there\", \"start\": 4.0, \"end\": 4.5}]",
      "0.000-0.800 |Good morning.\n0.900-1.500 |It rains\n4.000-4.500 |there\n" },
  { "word-list-japanese",
      "{\"words\": [{\"word\": \"今日\", \"start\": 0.0, \"end\": 0.3}, {\"word\": \"は\", "
      "\"start\": 0.3, "
      "\"end\": 0.4}, {\"word\": \"雨。\", \"start\": 0.4, \"end\": 0.9}, {\"word\": \"そう\", "
      "\"start\": "
      "1.0, \"end\": 1.4}]}",
      "0.000-0.900 |今日は雨。\n1.000-1.400 |そう\n" },
  { "word-speakers",
      "{\"words\": [{\"word\": \"yes\", \"start\": 0.0, \"end\": 0.3, \"speaker\": \"A\"}, "
      "{\"word\": "
      "\"no\", \"start\": 0.3, \"end\": 0.4, \"speaker\": \"B\"}]}",
      "0.000-0.300 A|A: yes\n0.300-0.400 B|B: no\n" },
  { "lines",
      "{\"partial\": \"hel\"}\n{\"partial\": \"hello\"}\n{\"result\": [{\"conf\": 1.0, \"end\": "
      "0.6, "
      "\"start\": 0.1, \"word\": \"hello\"}], \"text\": \"hello\"}\n{\"partial\": \"\"}\n"
      "{\"start\": 2.0, \"end\": 3.0, \"text\": \"again\"}\n",
      "0.100-0.600 |hello\n2.000-3.000 |again\n" },
  { "lines-words",
      "{\"word\": \"one\", \"start\": 0.1, \"end\": 0.4}\n{\"word\": \"two.\", \"start\": 0.4, "
      "\"end\": "
      "0.8}\n{\"word\": \"three\", \"start\": 0.9, \"end\": 1.2}\n",
      "0.100-0.800 |one two.\n0.900-1.200 |three\n" },
  { "whisper-cpp",
      "{\"result\": {\"language\": \"en\"}, \"transcription\": [{\"timestamps\": {\"from\": "
      "\"00:00:00,000\", \"to\": \"00:00:02,500\"}, \"offsets\": {\"from\": 0, \"to\": 2500}, "
      "\"text\": "
      "\" One\", \"tokens\": [{\"text\": \"[_BEG_]\", \"offsets\": {\"from\": 0, \"to\": 0}}]}]}",
      "0.000-2.500 |One\n" },
  { "chunks",
      "{\"text\": \" One Two\", \"chunks\": [{\"timestamp\": [0.0, 1.5], \"text\": \" One\"}, "
      "{\"timestamp\": [2.5, null], \"text\": \" Two\"}]}",
      "0.000-1.500 |One\n2.500-3.000 |Two\n" },
  { "milliseconds",
      "{\"text\": \"Hi there.\", \"words\": [{\"text\": \"Hi\", \"start\": 250, \"end\": 650, "
      "\"speaker\": null}, {\"text\": \"there.\", \"start\": 730, \"end\": 1022}]}",
      "0.250-1.022 |Hi there.\n" },
  { "whole-seconds", "[{\"text\": \"Good morning to you all.\", \"start\": 1, \"end\": 4}]",
      "1.000-4.000 |Good morning to you all.\n" },
  { "alternatives",
      "{\"results\": [{\"alternatives\": [{\"transcript\": \"how old\", \"confidence\": 0.9, "
      "\"words\": "
      "[{\"startTime\": \"0.300s\", \"endTime\": \"0.600s\", \"word\": \"how\"}, {\"startTime\": "
      "\"0.600s\", \"endTime\": \"0.800s\", \"word\": \"old\"}]}, {\"transcript\": \"who "
      "old\"}]}]}",
      "0.300-0.800 |how old\n" },
  { "items",
      "{\"results\": {\"transcripts\": [{\"transcript\": \"Hi. Yes.\"}], \"items\": "
      "[{\"start_time\": "
      "\"0.0\", \"end_time\": \"0.5\", \"alternatives\": [{\"content\": \"Hi\"}], \"type\": "
      "\"pronunciation\"}, {\"alternatives\": [{\"content\": \".\"}], \"type\": \"punctuation\"}, "
      "{\"start_time\": \"0.9\", \"end_time\": \"1.5\", \"alternatives\": [{\"content\": "
      "\"Yes\"}], "
      "\"type\": \"pronunciation\"}, {\"alternatives\": [{\"content\": \".\"}], \"type\": "
      "\"punctuation\"}]}}",
      "0.000-0.500 |Hi.\n0.900-1.500 |Yes.\n" },
  { "utterances-and-words",
      "{\"utterances\": [{\"speaker\": \"A\", \"start\": 0.5, \"end\": 1.5, \"text\": \"Hi.\", "
      "\"words\": "
      "[{\"text\": \"Hi.\", \"start\": 0.5, \"end\": 1.5}]}], \"words\": [{\"text\": \"Hi.\", "
      "\"start\": "
      "0.5, \"end\": 1.5}], \"text\": \"Hi.\"}",
      "0.500-1.500 A|A: Hi.\n" },
  { "podcast",
      "{\"version\": \"1.0.0\", \"segments\": [{\"speaker\": \"Ann\", \"startTime\": 0.5, "
      "\"endTime\": 1.0, \"body\": \"Hi\"}]}",
      "0.500-1.000 Ann|Ann: Hi\n" },
  { "events",
      "{\"events\": [{\"tStartMs\": 0, \"dDurationMs\": 900, \"segs\": [{\"utf8\": \"one\"}, "
      "{\"utf8\": "
      "\" two\", \"tOffsetMs\": 300}]}, {\"tStartMs\": 900, \"aAppend\": 1, \"segs\": [{\"utf8\": "
      "\"\\n\"}]}, {\"tStartMs\": 1000, \"dDurationMs\": 500, \"segs\": [{\"utf8\": \"three\"}]}]}",
      "0.000-0.900 |one two\n1.000-1.500 |three\n" },
  { "only-text", "{\"text\": \"Hello there.\"}", "?-? |Hello there.\n" },
  { "escapes",
      "[{\"text\": \"caf\\u00e9 \\ud83d\\ude00 \\\"q\\\" \\/ a\\nb \\ud83d!\", \"start\": 0.5, "
      "\"end\": 1.5}]",
      "0.500-1.500 |café 😀 \"q\" / a/b \xef\xbf\xbd!\n" },
  { "cut-off",
      "{\"segments\": [{\"start\": 0.5, \"end\": 1.5, \"text\": \"a\"}, {\"start\": 2.5, \"end\": "
      "3.5, \"text\": \"b c",
      "0.500-1.500 |a\n2.500-3.500 |b c\n" },
  { "python",
      "{'text': 'a', 'segments': [{'start': 1.0, 'end': 2.0, 'text': \"it's a\"}, "
      "{'start': 3.0, 'end': None, 'text': 'b'}], 'x': True}",
      "1.000-2.000 |it's a\n3.000-3.500 |b\n" },
  { "call", "captions.show({\"segments\": [{\"start\": 1, \"end\": 2, \"text\": \"a\"}]});",
      "1.000-2.000 |a\n" },
  { "assignment", "var x = [{\"start\": 1, \"end\": 2, \"text\": \"a\"}];\n", "1.000-2.000 |a\n" },
  { "comments",
      "// it's \"x\"\n/* {\"text\": 'x'} **/\n{\"segments\": [ // x\n"
      "{\"start\": 1, /**/ \"end\": 2, \"text\": \"a // b\"}]}\n",
      "1.000-2.000 |a // b\n" },
  { "no-speech", "{\"a\": [1, 2, {\"b\": null}], \"c\": true}", "" },
};

/* What services and programs write, cut down to what matters; ' stands for ". Their documentation
 * or output is where the shapes are from, the words are not. */
static const JsonCase shapes[] = {
  { "deepgram",
      "{'metadata': {'duration': 9.5, 'channels': 1}, 'results': {'channels': [{'alternatives': "
      "[{'transcript': 'Good morning. Who is there?', 'confidence': 0.9, 'words': [{'word': "
      "'good', 'start': 0.5, 'end': 0.7, 'speaker': 0, 'punctuated_word': 'Good'}, {'word': "
      "'morning', 'start': 0.7, 'end': 1.0, 'speaker': 0, 'punctuated_word': 'morning.'}, "
      "{'word': 'who', 'start': 2.0, 'end': 2.2, 'speaker': 1, 'punctuated_word': 'Who'}, "
      "{'word': 'is', 'start': 2.2, 'end': 2.4, 'speaker': 1, 'punctuated_word': 'is'}, "
      "{'word': 'there', 'start': 2.4, 'end': 2.6, 'speaker': 1, 'punctuated_word': "
      "'there?'}]}]}]}}",
      "0.500-1.000 Speaker 0|Speaker 0: Good morning.\n"
      "2.000-2.600 Speaker 1|Speaker 1: Who is there?\n" },
  { "deepgram-paragraphs",
      "{'results': {'channels': [{'alternatives': [{'transcript': 'Hi. Yes.', 'words': "
      "[{'word': 'hi', 'start': 0.5, 'end': 0.7, 'punctuated_word': 'Hi.'}, {'word': 'yes', "
      "'start': 2, 'end': 2.5, 'punctuated_word': 'Yes.'}], 'paragraphs': {'transcript': "
      "'\\nHi.\\n\\nYes.', 'paragraphs': [{'sentences': [{'text': 'Hi.', 'start': 0.5, "
      "'end': 0.7}], 'speaker': 0, 'num_words': 1, 'start': 0.5, 'end': 0.7}, {'sentences': "
      "[{'text': 'Yes.', 'start': 2.0, 'end': 2.5}], 'speaker': 1, 'num_words': 1, 'start': "
      "2.0, 'end': 2.5}]}}]}], 'utterances': [{'start': 0.5, 'end': 2.5, 'transcript': 'Hi. "
      "Yes.'}], 'summary': {'result': 'success', 'short': 'They greet.'}, 'topics': "
      "{'segments': [{'text': 'Hi.', 'start_word': 0, 'end_word': 1}]}}}",
      "0.500-0.700 Speaker 0|Speaker 0: Hi.\n2.000-2.500 Speaker 1|Speaker 1: Yes.\n" },
  { "deepgram-live",
      "{'type': 'Results', 'duration': 1.5, 'start': 2.0, 'is_final': false, 'channel': "
      "{'alternatives': [{'transcript': 'good', 'words': [{'word': 'good', 'start': 2.1, 'end': "
      "2.4}]}]}}\n{'type': 'Results', 'duration': 1.5, 'start': 2.0, 'is_final': true, "
      "'channel': {'alternatives': [{'transcript': 'good day', 'words': [{'word': 'good', "
      "'start': 2.1, 'end': 2.4}, {'word': 'day', 'start': 2.4, 'end': 2.9}]}]}}\n",
      "2.100-2.900 |good day\n" },
  { "assemblyai",
      "{'id': 'x', 'language_code': 'en_us', 'status': 'completed', 'text': 'Hi Bob. Hello.', "
      "'words': [{'text': 'Hi', 'start': 250, 'end': 350, 'speaker': 'A'}, {'text': 'Bob.', "
      "'start': 350, 'end': 600, 'speaker': 'A'}, {'text': 'Hello.', 'start': 1100, 'end': "
      "1500, 'speaker': 'B'}], 'utterances': null, 'auto_highlights_result': {'results': "
      "[{'text': 'Bob', 'timestamps': [{'start': 350, 'end': 600}]}]}, 'entities': "
      "[{'entity_type': 'person_name', 'text': 'Bob', 'start': 350, 'end': 600}], "
      "'iab_categories_result': {'results': [{'text': 'Hi Bob.', 'timestamp': {'start': 250, "
      "'end': 600}}]}, 'audio_duration': 2}",
      "0.250-0.600 A|A: Hi Bob.\n1.100-1.500 B|B: Hello.\n" },
  { "google",
      "{'results': [{'alternatives': [{'transcript': 'how are you', 'words': [{'startTime': "
      "'0s', 'endTime': '0.300s', 'word': 'how'}, {'startTime': '0.300s', 'endTime': '0.500s', "
      "'word': 'are'}, {'startTime': '0.500s', 'endTime': '0.900s', 'word': 'you'}]}], "
      "'resultEndTime': '1s'}, {'alternatives': [{'transcript': ' fine', 'words': [{'startTime': "
      "'1.200s', 'endTime': '1.500s', 'word': 'fine'}]}], 'resultEndTime': '2s'}]}",
      "0.000-0.900 |how are you\n1.200-1.500 |fine\n" },
  { "google-speakers",
      "{'results': [{'alternatives': [{'transcript': 'how are you', 'words': [{'startTime': "
      "'0s', 'endTime': '0.3s', 'word': 'how'}, {'startTime': '0.3s', 'endTime': '0.9s', "
      "'word': 'are you'}]}]}, {'alternatives': [{'transcript': ' fine', 'words': "
      "[{'startTime': '1.2s', 'endTime': '1.5s', 'word': 'fine'}]}]}, {'alternatives': "
      "[{'words': [{'startTime': '0s', 'endTime': '0.3s', 'word': 'how', 'speakerTag': 1}, "
      "{'startTime': '0.3s', 'endTime': '0.9s', 'word': 'are you', 'speakerTag': 1}, "
      "{'startTime': '1.2s', 'endTime': '1.5s', 'word': 'fine', 'speakerTag': 2}]}]}]}",
      "0.000-0.900 Speaker 1|Speaker 1: how are you\n1.200-1.500 Speaker 2|Speaker 2: fine\n" },
  { "google-client",
      "{'results': [{'alternatives': [{'transcript': 'one two', 'words': [{'startTime': "
      "{'seconds': '1', 'nanos': 200000000}, 'endTime': {'seconds': '2'}, 'word': 'one'}, "
      "{'startTime': {'seconds': '2'}, 'endTime': {'seconds': '2', 'nanos': 500000000}, 'word': "
      "'two'}]}]}]}",
      "1.200-2.500 |one two\n" },
  { "amazon",
      "{'jobName': 'x', 'results': {'transcripts': [{'transcript': 'Hi. Yes.'}], "
      "'speaker_labels': {'speakers': 2, 'segments': [{'start_time': '0.0', 'speaker_label': "
      "'spk_0', 'end_time': '0.5', 'items': [{'start_time': '0.0', 'speaker_label': 'spk_0', "
      "'end_time': '0.5'}]}, {'start_time': '0.9', 'speaker_label': 'spk_1', 'end_time': '1.5', "
      "'items': [{'start_time': '0.9', 'speaker_label': 'spk_1', 'end_time': '1.5'}]}]}, "
      "'items': [{'start_time': '0.0', 'end_time': '0.5', 'alternatives': [{'confidence': "
      "'0.9', 'content': 'Hi'}], 'type': 'pronunciation'}, {'alternatives': [{'confidence': "
      "'0.0', 'content': '.'}], 'type': 'punctuation'}, {'start_time': '0.9', 'end_time': "
      "'1.5', 'alternatives': [{'content': 'Yes'}], 'type': 'pronunciation'}, {'alternatives': "
      "[{'content': '.'}], 'type': 'punctuation'}]}, 'status': 'COMPLETED'}",
      "0.000-0.500 spk_0|spk_0: Hi.\n0.900-1.500 spk_1|spk_1: Yes.\n" },
  { "amazon-segments",
      "{'results': {'transcripts': [{'transcript': 'Hi.'}], 'items': [{'id': 0, 'type': "
      "'pronunciation', 'alternatives': [{'content': 'Hi'}], 'start_time': '0.0', 'end_time': "
      "'0.5', 'speaker_label': 'spk_0'}, {'id': 1, 'type': 'punctuation', 'alternatives': "
      "[{'content': '.'}], 'speaker_label': 'spk_0'}], 'audio_segments': [{'id': 0, "
      "'transcript': 'Hi.', 'start_time': '0.0', 'end_time': '0.5', 'speaker_label': 'spk_0', "
      "'items': [0, 1]}]}}",
      "0.000-0.500 spk_0|spk_0: Hi.\n" },
  { "amazon-calls",
      "{'Transcript': [{'Content': 'Hi.', 'Items': [{'Content': 'Hi', 'BeginOffsetMillis': 100, "
      "'EndOffsetMillis': 500}], 'Id': 'x', 'BeginOffsetMillis': 100, 'EndOffsetMillis': 600, "
      "'Sentiment': 'NEUTRAL', 'ParticipantRole': 'AGENT'}]}",
      "0.100-0.600 AGENT|AGENT: Hi.\n" },
  { "azure",
      "{'source': 'x', 'timestamp': '2026-01-02T10:00:00Z', 'durationInTicks': 30000000, "
      "'duration': 'PT3S', 'combinedRecognizedPhrases': [{'channel': 0, 'lexical': 'hello', "
      "'display': 'Hello.'}], 'recognizedPhrases': [{'recognitionStatus': 'Success', 'speaker': "
      "1, 'offset': 'PT0.07S', 'duration': 'PT1.59S', 'offsetInTicks': 700000.0, "
      "'durationInTicks': 15900000.0, 'nBest': [{'confidence': 0.9, 'lexical': 'hello', 'itn': "
      "'hello', 'maskedITN': 'hello', 'display': 'Hello.'}]}, {'speaker': 2, 'offsetInTicks': "
      "20000000.0, 'durationInTicks': 5000000.0, 'nBest': [{'display': 'Yes.', 'words': "
      "[{'word': 'yes', 'offsetInTicks': 20000000.0, 'durationInTicks': 5000000.0}]}, "
      "{'display': 'Jes.'}]}]}",
      "0.070-1.660 Speaker 1|Speaker 1: Hello.\n2.000-2.500 Speaker 2|Speaker 2: Yes.\n" },
  { "azure-fast",
      "{'durationMilliseconds': 3000, 'combinedPhrases': [{'text': 'Good day.'}], 'phrases': "
      "[{'speaker': 1, 'offsetMilliseconds': 960, 'durationMilliseconds': 640, 'text': 'Good "
      "day.', 'words': [{'text': 'Good', 'offsetMilliseconds': 960, 'durationMilliseconds': "
      "240}], 'locale': 'en-US'}]}",
      "0.960-1.600 Speaker 1|Speaker 1: Good day.\n" },
  { "azure-live",
      "{'Id': 'x', 'RecognitionStatus': 'Success', 'Offset': 700000, 'Duration': 15900000, "
      "'DisplayText': 'Hello.', 'NBest': [{'Display': 'Hello.'}]}",
      "0.070-1.660 |Hello.\n" },
  { "teams",
      "{'version': '1.0.0', 'type': 'Transcript', 'entries': [{'id': 'x/1', 'text': 'Hello.', "
      "'speakerId': 'a7@b', 'speakerDisplayName': 'Ann Lee', 'startOffset': "
      "'00:00:03.2800000', 'endOffset': '00:00:04.5000000', 'spokenLanguageTag': 'en-us'}], "
      "'events': [{'id': 'x', 'eventType': 'CallStarted', 'startDateTime': "
      "'2026-01-02T10:00:00Z'}]}",
      "3.280-4.500 Ann Lee|Ann Lee: Hello.\n" },
  { "meet",
      "{'transcriptEntries': [{'participant': 'x/1', 'text': 'Hello.', 'languageCode': 'en-US', "
      "'startTime': '2026-01-02T10:00:01.500Z', 'endTime': '2026-01-02T10:00:03Z'}, "
      "{'participant': 'x/2', 'text': 'Yes.', 'startTime': '2026-01-02T10:00:04Z', 'endTime': "
      "'2026-01-02T10:00:05Z'}]}",
      "0.000-1.500 x/1|x/1: Hello.\n2.500-3.500 x/2|x/2: Yes.\n" },
  { "speechmatics",
      "{'format': '2.9', 'results': [{'alternatives': [{'confidence': 1.0, 'content': "
      "'Welcome', 'language': 'en', 'speaker': 'S1'}], 'end_time': 1.0, 'start_time': 0.6, "
      "'type': 'word'}, {'alternatives': [{'content': '.', 'speaker': 'S1'}], 'attaches_to': "
      "'previous', 'end_time': 1.0, 'is_eos': true, 'start_time': 1.0, 'type': "
      "'punctuation'}, {'alternatives': [{'content': '17th', 'speaker': 'S2'}], 'end_time': "
      "2.5, 'spoken_form': [{'alternatives': [{'content': 'seventeenth'}], 'start_time': 2.0, "
      "'end_time': 2.5, 'type': 'word'}], 'start_time': 2.0, 'type': 'entity'}], "
      "'translations': {'de': [{'content': 'Willkommen.', 'start_time': 0.6, 'end_time': "
      "1.0}]}}",
      "0.600-1.000 S1|S1: Welcome.\n2.000-2.500 S2|S2: 17th\n" },
  { "rev",
      "{'monologues': [{'speaker': 0, 'elements': [{'type': 'text', 'value': 'Hi', 'ts': 0.27, "
      "'end_ts': 0.48, 'confidence': 1}, {'type': 'punct', 'value': ','}, {'type': 'punct', "
      "'value': ' '}, {'type': 'text', 'value': 'Ann', 'ts': 0.51, 'end_ts': 0.8}, {'type': "
      "'punct', 'value': '.'}]}, {'speaker': 1, 'elements': [{'type': 'text', 'value': 'Yes', "
      "'ts': 1.5, 'end_ts': 1.8}, {'type': 'punct', 'value': '.'}]}]}",
      "0.270-0.800 Speaker 0|Speaker 0: Hi, Ann.\n1.500-1.800 Speaker 1|Speaker 1: Yes.\n" },
  { "watson",
      "{'results': [{'final': true, 'alternatives': [{'transcript': 'hello there ', "
      "'confidence': 0.9, 'timestamps': [['hello', 0.5, 1.2], ['there', 1.2, 2.0]]}], "
      "'word_alternatives': [{'start_time': 0.5, 'end_time': 1.2, 'alternatives': [{'word': "
      "'hello'}, {'word': 'hallo'}]}]}, {'final': true, 'alternatives': [{'transcript': 'yes', "
      "'timestamps': [['yes', 3.0, 3.5]]}]}], 'result_index': 0, 'speaker_labels': [{'from': "
      "0.5, 'to': 1.2, 'speaker': 0}, {'from': 1.2, 'to': 2.0, 'speaker': 0}, {'from': 3.0, "
      "'to': 3.5, 'speaker': 1}]}",
      "0.500-2.000 Speaker 0|Speaker 0: hello there\n3.000-3.500 Speaker 1|Speaker 1: yes\n" },
  { "elevenlabs",
      "{'language_code': 'eng', 'text': 'Hello there! Yes.', 'words': [{'text': 'Hello', "
      "'start': 0.5, 'end': 0.7, 'type': 'word', 'speaker_id': 'speaker_0', 'characters': "
      "[{'text': 'H', 'start': 0.5, 'end': 0.6}]}, {'text': ' ', 'start': 0.7, 'end': 0.8, "
      "'type': 'spacing', 'speaker_id': 'speaker_0'}, {'text': 'there!', 'start': 0.8, 'end': "
      "1.2, 'type': 'word', 'speaker_id': 'speaker_0'}, {'text': ' ', 'start': 1.2, 'end': "
      "2.0, 'type': 'spacing', 'speaker_id': 'speaker_1'}, {'text': 'Yes.', 'start': 2.0, "
      "'end': 2.4, 'type': 'word', 'speaker_id': 'speaker_1'}]}",
      "0.500-1.200 speaker_0|speaker_0: Hello there!\n"
      "2.000-2.400 speaker_1|speaker_1: Yes.\n" },
  { "soniox",
      "{'id': 'x', 'text': 'Hello there. Yes.', 'tokens': [{'text': 'Hel', 'start_ms': 500, "
      "'end_ms': 600, 'speaker': '1'}, {'text': 'lo', 'start_ms': 600, 'end_ms': 700, "
      "'speaker': '1'}, {'text': ' there', 'start_ms': 800, 'end_ms': 1000, 'speaker': '1'}, "
      "{'text': '.', 'start_ms': 1000, 'end_ms': 1100, 'speaker': '1'}, {'text': ' Yes', "
      "'start_ms': 2000, 'end_ms': 2400, 'speaker': '2'}, {'text': '.', 'start_ms': 2400, "
      "'end_ms': 2500, 'speaker': '2'}, {'text': '<end>', 'speaker': '2'}]}",
      "0.500-1.100 Speaker 1|Speaker 1: Hello there.\n"
      "2.000-2.500 Speaker 2|Speaker 2: Yes.\n" },
  { "gladia",
      "{'result': {'metadata': {'audio_duration': 3}, 'transcription': {'full_transcript': 'Hi "
      "there.', 'languages': ['en'], 'utterances': [{'text': 'Hi there.', 'language': 'en', "
      "'start': 0.5, 'end': 1.5, 'speaker': 0, 'words': [{'word': ' Hi', 'start': 0.5, 'end': "
      "0.9}]}]}, 'translation': {'results': [{'utterances': [{'text': 'Salut.', 'start': 0.5, "
      "'end': 1.5}]}]}}}",
      "0.500-1.500 Speaker 0|Speaker 0: Hi there.\n" },
  { "openai",
      "{'task': 'transcribe', 'language': 'english', 'duration': 3.5, 'text': 'Hi there.', "
      "'words': [{'word': 'Hi', 'start': 0.5, 'end': 0.9}, {'word': 'there', 'start': 0.9, "
      "'end': 1.4}], 'segments': [{'id': 0, 'start': 0.5, 'end': 1.5, 'text': ' Hi there.', "
      "'tokens': [1, 2]}]}",
      "0.500-1.500 |Hi there.\n" },
  { "openai-speakers",
      "{'text': 'Hi. Yes.', 'segments': [{'type': 'transcript.text.segment', 'id': 'a', "
      "'start': 0.5, 'end': 0.9, 'text': 'Hi.', 'speaker': 'agent'}, {'type': "
      "'transcript.text.segment', 'start': 2.0, 'end': 2.5, 'text': 'Yes.', 'speaker': 'A'}], "
      "'usage': {'type': 'duration', 'seconds': 3}}",
      "0.500-0.900 agent|agent: Hi.\n2.000-2.500 A|A: Yes.\n" },
  { "whisperx",
      "{'segments': [{'start': 0.5, 'end': 2.5, 'text': ' Hi. In 2014, yes.', 'words': "
      "[{'word': 'Hi.', 'start': 0.5, 'end': 0.9, 'score': 0.9, 'speaker': 'SPEAKER_00'}, "
      "{'word': 'In', 'start': 1.2, 'end': 1.5, 'speaker': 'SPEAKER_01'}, {'word': '2014,'}, "
      "{'word': 'yes.', 'start': 2.0, 'end': 2.5, 'speaker': 'SPEAKER_01'}], 'speaker': "
      "'SPEAKER_01'}], 'word_segments': [{'word': 'Hi.', 'start': 0.5, 'end': 0.9}]}",
      "0.500-0.900 SPEAKER_00|SPEAKER_00: Hi.\n"
      "1.200-2.500 SPEAKER_01|SPEAKER_01: In 2014, yes.\n" },
  { "whisper-cpp-full",
      "{'systeminfo': 'x', 'model': {'type': 'base'}, 'params': {'language': 'en'}, 'result': "
      "{'language': 'en'}, 'transcription': [{'timestamps': {'from': '00:00:00,500', 'to': "
      "'00:00:02,500'}, 'offsets': {'from': 500, 'to': 2500}, 'text': ' One two.', 'tokens': "
      "[{'text': '[_BEG_]', 'offsets': {'from': 0, 'to': 0}, 'id': 50364}, {'text': ' One', "
      "'offsets': {'from': 500, 'to': 900}}], 'speaker': '?'}]}",
      "0.500-2.500 |One two.\n" },
  { "transformers",
      "{'text': ' One. Two', 'chunks': [{'timestamp': (0.5, 1.5), 'text': ' One.'}, "
      "{'timestamp': (2.5, None), 'text': ' Two'}]}",
      "0.500-1.500 |One.\n2.500-3.000 |Two\n" },
  { "nemo",
      "{'text': 'Hi there', 'timestamp': {'char': [{'char': ['H'], 'start': 0.5, 'end': 0.6}], "
      "'word': [{'word': 'Hi', 'start_offset': 6, 'end_offset': 9, 'start': 0.5, 'end': 0.9}, "
      "{'word': 'there', 'start_offset': 9, 'end_offset': 12, 'start': 0.9, 'end': 1.4}]}}",
      "0.500-1.400 |Hi there\n" },
  { "youtube-auto",
      "{'wireMagic': 'pb3', 'pens': [{}], 'wpWinPositions': [{}, {'apPoint': 6}], 'events': "
      "[{'tStartMs': 0, 'dDurationMs': 9000, 'id': 1, 'wpWinPosId': 1}, {'tStartMs': 500, "
      "'dDurationMs': 2000, 'wWinId': 1, 'segs': [{'utf8': 'one', 'acAsrConf': 0}, {'utf8': ' "
      "two', 'tOffsetMs': 300}]}, {'tStartMs': 2490, 'dDurationMs': 10, 'wWinId': 1, 'aAppend': "
      "1, 'segs': [{'utf8': '\\n'}]}, {'tStartMs': 2500, 'dDurationMs': 1000, 'wWinId': 1, "
      "'segs': [{'utf8': 'three'}]}]}",
      "0.500-2.500 |one two\n2.500-3.500 |three\n" },
  { "recall",
      "[{'participant': {'id': 1, 'name': 'Ann Lee', 'is_host': true}, 'words': [{'text': "
      "'Hello', 'start_timestamp': {'relative': 0.5, 'absolute': '2026-01-02T10:00:00Z'}, "
      "'end_timestamp': {'relative': 0.9}}, {'text': 'there.', 'start_timestamp': {'relative': "
      "0.9}, 'end_timestamp': {'relative': 1.4}}]}, {'participant': {'id': 2, 'name': 'Bob'}, "
      "'words': [{'text': 'Yes.', 'start_timestamp': {'relative': 2.5}, 'end_timestamp': "
      "{'relative': 3.0}}]}]",
      "0.500-1.400 Ann Lee|Ann Lee: Hello there.\n2.500-3.000 Bob|Bob: Yes.\n" },
  { "dpe",
      "{'words': [{'id': 0, 'start': 0.5, 'end': 0.9, 'text': 'Hi'}, {'id': 1, 'start': 2.0, "
      "'end': 2.4, 'text': 'Yes'}], 'paragraphs': [{'id': 0, 'start': 0.5, 'end': 1.5, "
      "'speaker': 'Ann'}, {'id': 1, 'start': 2.0, 'end': 2.4, 'speaker': 'Bob'}]}",
      "0.500-0.900 Ann|Ann: Hi\n2.000-2.400 Bob|Bob: Yes\n" },
  { "kaltura",
      "{'objects': [{'startTime': 0, 'endTime': 61000, 'content': [{'text': 'One.'}]}, "
      "{'startTime': 61500, 'endTime': 63000, 'content': [{'text': 'Two'}, {'text': 'lines.'}]}]}",
      "0.000-61.000 |One.\n61.500-63.000 |Two lines.\n" },
  { "bilibili",
      "{'font_size': 0.4, 'lang': 'zh', 'body': [{'from': 0.5, 'to': 1.5, 'sid': 1, 'location': "
      "2, 'content': '你好。'}, {'from': 2.5, 'to': 3.5, 'content': '再见。'}]}",
      "0.500-1.500 |你好。\n2.500-3.500 |再见。\n" },
  { "messages",
      "[{'timestamp': '2026-01-02T10:00:01Z', 'speaker': 'Ann', 'text': 'Hello.'}, {'timestamp': "
      "'2026-01-02T10:00:04Z', 'speaker': 'Bob', 'text': 'Yes.'}]",
      "0.000-0.500 Ann|Ann: Hello.\n3.000-3.500 Bob|Bob: Yes.\n" },
  { "epoch",
      "[{'start_time': 1767348001000, 'end_time': 1767348003000, 'speaker': {'name': 'Ann'}, "
      "'words': 'Hello.'}, {'start_time': 1767348004000, 'end_time': 1767348005500, 'speaker': "
      "{'name': 'Bob'}, 'words': 'Yes.'}]",
      "0.000-2.000 Ann|Ann: Hello.\n3.000-4.500 Bob|Bob: Yes.\n" },
  { "texts", "['One.', 'Two.']", "?-? |One.\n?-? |Two.\n" },
  { "texts-in-object", "{'language': 'en', 'transcript': ['One.', 'Two.', 'Three.']}",
      "?-? |One.\n?-? |Two.\n?-? |Three.\n" },
  { "rows", "[[0.5, 1.5, 'One.'], [2.5, 3.5, 'Two.']]", "0.500-1.500 |One.\n2.500-3.500 |Two.\n" },
  { "nothing", "[]", "" },
  { "nothing-spaced", "\n[ ]\n", "" },
  { "nothing-object", "{}", "" },
  { "no-segments", "{'text': '', 'segments': [], 'language': 'en'}", "" },
};

/* What is broken, what comes of it, and where that was noticed; ' stands for ". */
typedef struct {
  const char *name;
  const char *json;
  const char *expected;
  guint line;
  guint column;
} BrokenCase;

#define ONE "{'start': 0.5, 'end': 1.5, 'text': 'One.'}"
#define TWO "{'start': 2.5, 'end': 3.5, 'text': 'Two.'}"
#define READ_ONE "0.500-1.500 |One.\n"
#define READ_TWO "2.500-3.500 |Two.\n"

static const BrokenCase broken[] = {
  { "brace", "{", "", 1, 2 },
  { "bracket", "[\n", "", 2, 1 },
  { "within-key", "{'segm", "", 1, 7 },
  { "within-first", "{'segments': [{'start': 1,\n'text", "", 2, 6 },
  { "after-one", "{'segments': [\n" ONE ",\n", READ_ONE, 3, 1 },
  { "within-number", "{'segments': [" ONE ", {'text': 'Two.', 'start': 2",
      READ_ONE "2.000-2.500 |Two.\n", 1, 86 },
  { "within-string", "{'segments': [" ONE ", {'start': 2.5, 'text': 'Tw",
      READ_ONE "2.500-3.000 |Tw\n", 1, 85 },
  { "within-escape", "[{'start': 2.5, 'text': 'Tw\\", "2.500-3.000 |Tw\n", 1, 29 },
  { "quote", "[{'start': 0.5, 'end': 1.5, 'text': 'He said 'hi' to me.'},\n" TWO "]",
      "0.500-1.500 |He said \"hi\" to me.\n" READ_TWO, 1, 47 },
  { "quote-comma", "[{'start': 0.5, 'end': 1.5, 'text': 'He said 'hi', and left.'}, " TWO "]",
      "0.500-1.500 |He said \"hi\", and left.\n" READ_TWO, 1, 47 },
  { "quote-last", "[{'start': 0.5, 'end': 1.5, 'text': 'He said 'hi''}, " TWO "]",
      "0.500-1.500 |He said \"hi\"\n" READ_TWO, 1, 47 },
  { "quote-first", "[{'text': ''Hi' he said', 'start': 0.5, 'end': 1.5}, " TWO "]",
      "0.500-1.500 |\"Hi\" he said\n" READ_TWO, 1, 13 },
  { "unclosed", "[{'text': 'One., 'start': 0.5, 'end': 1.5}, " TWO "]", READ_ONE READ_TWO, 1, 11 },
  { "unclosed-last", "[{'start': 0.5, 'end': 1.5, 'text': 'One.}, " TWO "]", READ_ONE READ_TWO, 1,
      37 },
  { "unclosed-unwanted", "[{'id': 'x, 'start': 0.5, 'end': 1.5, 'text': 'One.'}, " TWO "]",
      READ_ONE READ_TWO, 1, 9 },
  { "unclosed-line", "{'start': 0.5, 'end': 1.5, 'text': 'One.\n" TWO "\n", READ_ONE READ_TWO, 1,
      36 },
  { "lost-line-end", "{'start': 0.5, 'end': 1.5, 'text': 'One.'\n" TWO "\n", READ_ONE READ_TWO, 2,
      1 },
  { "missing-comma", "[{'start': 0.5 'end': 1.5, 'text': 'One.'} " TWO "]", READ_ONE READ_TWO, 1,
      16 },
  { "missing-comma-string", "[{'text': 'One.'\n'start': 0.5, 'end': 1.5}, " TWO "]",
      READ_ONE READ_TWO, 2, 1 },
  { "missing-colon", "[{'start' 0.5, 'end': 1.5, 'text' 'One.'}, " TWO "]", READ_ONE READ_TWO, 1,
      14 },
  { "missing-brace", "{'segments': [{'start': 0.5, 'end': 1.5, 'text': 'One.', " TWO "]}",
      READ_ONE READ_TWO, 1, 58 },
  { "missing-bracket", "{'segments': [" ONE ", " TWO ", 'language': 'en'}", READ_ONE READ_TWO, 1,
      113 },
  { "extra-brace", "{'segments': [" ONE "}, " TWO "]}", READ_ONE READ_TWO, 1, 57 },
  { "extra-comma", "[" ONE ",,\n " TWO ",]", READ_ONE READ_TWO, 0, 0 },
  { "missing-value", "[{'speaker':, 'start': 0.5, 'end': 1.5, 'text': 'One.'}, " TWO "]",
      READ_ONE READ_TWO, 1, 13 },
  { "keys-bare", "[{start: 0.5, end: 1.5, text: 'One.'}, {text: 'Two.', start: 2.5, end: 3.5}]",
      READ_ONE READ_TWO, 0, 0 },
  { "keys-bare-line", "{start: 0.5, end: 1.5, text: 'One.'}\n", READ_ONE, 0, 0 },
  { "unclosed-at-end", "{'segments': [{'start': 0.5, 'end': 1.5, 'text': 'One.}\n ]\n}\n", READ_ONE,
      4, 1 },
  { "noise", "[" ONE ", @@@ " TWO "]", READ_ONE READ_TWO, 1, 46 },
  { "log-between", ONE "\nLOG (main.cc:2) y\n" TWO "\n", READ_ONE READ_TWO, 0, 0 },
};

static char *
with_quotes (const char *json)
{
  return g_strdelimit (g_strdup (json), "'", '"');
}

static void
check (const char *json, const char *expected)
{
  ReadOptions options = { 0 };
  gsize length = strlen (json);
  g_autofree char *whole = describe_transcript (json, length, length, 1, &options);

  g_assert_cmpstr (whole, ==, expected);
  for (gsize first = 1; first < length && !g_test_failed (); first++) {
    g_autofree char *two = describe_transcript (json, length, first, 1 + first % 9, &options);

    g_assert_cmpstr (two, ==, expected);
  }
}

static void
test_json (gconstpointer data)
{
  const JsonCase *c = data;

  check (c->json, c->expected);
}

static void
test_shape (gconstpointer data)
{
  const JsonCase *c = data;
  g_autofree char *json = with_quotes (c->json);

  check (json, c->expected);
}

static void
test_broken (gconstpointer data)
{
  const BrokenCase *c = data;
  ReadOptions options = { 0 };
  ReadResult result = { 0 };
  g_autofree char *json = with_quotes (c->json);
  g_autoptr (GPtrArray) cues = NULL;

  check (json, c->expected);
  for (gsize piece = 1; piece <= strlen (json); piece += 1 + piece / 2) {
    g_clear_pointer (&cues, g_ptr_array_unref);
    cues = read_transcript (json, strlen (json), piece, piece, &options, &result);
    g_assert_cmpint (result.report.fault != NULL, ==, c->line > 0);
    g_assert_cmpuint (result.report.fault_line, ==, c->line);
    g_assert_cmpuint (result.report.fault_column, ==, c->column);
    g_free (result.language);
  }
}

/* A valid file has no fault, wherever it is cut off it has one and the words before that place. */
static void
test_cut_off (void)
{
  ReadOptions options = { 0 };

  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++) {
    g_autofree char *json = with_quotes (shapes[i].json);

    for (gsize length = strlen (json); length > 0; length--) {
      ReadResult result = { 0 };
      g_autoptr (GPtrArray) cues =
          read_transcript (json, length, length, length, &options, &result);

      if (length == strlen (json) && result.report.fault != NULL)
        g_test_message ("%s: %s", shapes[i].name, result.report.fault);
      if (length == strlen (json))
        g_assert_null (result.report.fault);
      g_free (result.language);
    }
  }
}

static void
add (const char *group, const char *name, gconstpointer data, GTestDataFunc function)
{
  g_autofree char *path = g_strconcat ("/transcript-json/", group, "/", name, NULL);

  g_test_add_data_func (path, data, function);
}

int
main (int argc, char **argv)
{
  g_test_init (&argc, &argv, NULL);
  g_test_set_nonfatal_assertions ();

  for (guint i = 0; i < G_N_ELEMENTS (json_cases); i++)
    add ("read", json_cases[i].name, &json_cases[i], test_json);
  for (guint i = 0; i < G_N_ELEMENTS (shapes); i++)
    add ("shape", shapes[i].name, &shapes[i], test_shape);
  for (guint i = 0; i < G_N_ELEMENTS (broken); i++)
    add ("broken", broken[i].name, &broken[i], test_broken);
  g_test_add_func ("/transcript-json/cut-off", test_cut_off);
  return g_test_run ();
}
